"""SaslHandshake: rejected at once, since no listener has SASL (KIP-43).

The answer is Kafka's on a listener without SASL. Clients that would come again and again over a closed
connection give up on it, and say why.
"""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API_KEY = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)
SASL_UNSUPPORTED = (
    "the broker does not support SASL yet (docs/operating.md), the client needs security.protocol=PLAINTEXT"
)


def handle(context: ClientContext, header: RequestHeader, request: SaslHandshakeRequest) -> HandlerResponse:
    """ILLEGAL_SASL_STATE, and a line in the log."""
    log_sasl_attempt(context)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def log_sasl_attempt(context: ClientContext) -> None:
    """Log the client that tries SASL, once a minute."""
    context.services.rate_limited_log.warning(f"{context.peer}: {SASL_UNSUPPORTED}", same=SASL_UNSUPPORTED)
