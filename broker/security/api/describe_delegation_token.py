"""DescribeDelegationToken: rejected over a connection without authentication (KIP-48)."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.delegation_tokens import NOT_ALLOWED
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


class DescribeDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    versions = (1, 3)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeDelegationTokenRequest
    ) -> HandlerResponse:
        """The error, without tokens."""
        return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
