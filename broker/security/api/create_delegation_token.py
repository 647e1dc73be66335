"""CreateDelegationToken: rejected over a connection without authentication (KIP-48)."""

from __future__ import annotations

from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.delegation_tokens import NO_TIME, NOT_ALLOWED
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

REQUESTER_MIN_VERSION = 3


class CreateDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_DELEGATION_TOKEN
    versions = (1, 3)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: CreateDelegationTokenRequest
    ) -> HandlerResponse:
        """The error, with the principals that the token would have had."""
        owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
        if not owner_name:
            owner_type, owner_name = client.principal.principal_type, client.principal.name
        response = CreateDelegationTokenResponse(
            error_code=NOT_ALLOWED,
            principal_type=owner_type or "",
            principal_name=owner_name,
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
        )
        if header.api_version >= REQUESTER_MIN_VERSION:
            response.token_requester_principal_type = client.principal.principal_type
            response.token_requester_principal_name = client.principal.name
        return response
