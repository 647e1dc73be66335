"""SaslAuthenticate: rejected, since no listener has SASL (KIP-152).

The response is Kafka's for a connection that need not log in. A client that skips SaslHandshake reads the
reason; a closed connection would only make it try again.
"""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.api.sasl_handshake import log_sasl_attempt
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.storage.rate_limited_log import RateLimitedLog


class SaslAuthenticate(RequestHandler):
    """See the module."""

    api_key = ApiKey.SASL_AUTHENTICATE
    versions = (0, 2)

    def __init__(self, rate_limited_log: RateLimitedLog) -> None:
        self._rate_limited_log = rate_limited_log

    def handle(
        self, client: ClientContext, header: RequestHeader, request: SaslAuthenticateRequest
    ) -> HandlerResponse:
        """ILLEGAL_SASL_STATE, and the same line in the log as for SaslHandshake."""
        log_sasl_attempt(self._rate_limited_log, client)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
