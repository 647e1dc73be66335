"""SaslHandshake: rejected at once, since no listener has SASL (KIP-43).

The response is Kafka's on a listener without SASL. Clients that would reconnect again and again after a
closed connection fail at it, and report why.
"""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from lockstep.storage.rate_limited_log import RateLimitedLog

SASL_UNSUPPORTED = (
    "this listener has no SASL (docs/security.md): the client needs security.protocol=PLAINTEXT or SSL"
)


class SaslHandshake(RequestHandler):
    """See the module."""

    api_key = ApiKey.SASL_HANDSHAKE
    versions = (0, 1)

    def __init__(self, rate_limited_log: RateLimitedLog) -> None:
        self._rate_limited_log = rate_limited_log

    def handle(
        self, client: ClientContext, header: RequestHeader, request: SaslHandshakeRequest
    ) -> HandlerResponse:
        """ILLEGAL_SASL_STATE, and a line in the log."""
        log_sasl_attempt(self._rate_limited_log, client)
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def log_sasl_attempt(rate_limited_log: RateLimitedLog, client: ClientContext) -> None:
    """Log the client that tries SASL, once a minute."""
    rate_limited_log.warning(f"{client.peer}: {SASL_UNSUPPORTED}", same=SASL_UNSUPPORTED)
