"""ExpireDelegationToken: its owner or a renewer lets a token end earlier, or at once (KIP-48)."""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.security.delegation_tokens import DelegationTokens
from lockstep.broker.security.token_request_policy import NO_TIME, TokenRequestPolicy
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


class ExpireDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.EXPIRE_DELEGATION_TOKEN
    versions = (1, 2)
    needs = Needs.CONTROLLER

    def __init__(self, tokens: DelegationTokens, token_request_policy: TokenRequestPolicy) -> None:
        self._tokens, self._token_request_policy = tokens, token_request_policy

    def is_local(self, client: ClientContext, request: ExpireDelegationTokenRequest) -> bool:
        """True for a client that is rejected where it is connected."""
        return not self._token_request_policy.is_allowed(client)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ExpireDelegationTokenRequest
    ) -> HandlerResponse:
        """The token's new end."""
        if not self._token_request_policy.is_allowed(client):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
        return self._expire(client, bytes(request.hmac), request.expiry_time_period_ms)

    async def _expire(
        self, client: ClientContext, token_hmac: bytes, period_ms: int
    ) -> ExpireDelegationTokenResponse:
        try:
            expiry_ms = await self._tokens.expire(client.principal, token_hmac, period_ms)
        except RequestError as error:
            return ExpireDelegationTokenResponse(error_code=error.error)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
