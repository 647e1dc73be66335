"""ExpireDelegationToken: rejected over a connection without authentication (KIP-48)."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.delegation_tokens import NO_TIME, NOT_ALLOWED
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


class ExpireDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.EXPIRE_DELEGATION_TOKEN
    versions = (1, 2)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ExpireDelegationTokenRequest
    ) -> HandlerResponse:
        """The error, without a time."""
        return ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIME)
