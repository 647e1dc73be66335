"""RenewDelegationToken: its owner or a renewer lets a token be valid for longer (KIP-48)."""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.security.delegation_tokens import DelegationTokens
from lockstep.broker.security.token_request_policy import NO_TIME, TokenRequestPolicy
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


class RenewDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.RENEW_DELEGATION_TOKEN
    versions = (1, 2)
    needs = Needs.CONTROLLER

    def __init__(self, tokens: DelegationTokens, token_request_policy: TokenRequestPolicy) -> None:
        self._tokens, self._token_request_policy = tokens, token_request_policy

    def is_local(self, client: ClientContext, request: RenewDelegationTokenRequest) -> bool:
        """True for a client that is rejected where it is connected."""
        return not self._token_request_policy.is_allowed(client)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: RenewDelegationTokenRequest
    ) -> HandlerResponse:
        """The token's new end."""
        if not self._token_request_policy.is_allowed(client):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
        return self._renew(client, bytes(request.hmac), request.renew_period_ms)

    async def _renew(
        self, client: ClientContext, token_hmac: bytes, period_ms: int
    ) -> RenewDelegationTokenResponse:
        try:
            expiry_ms = await self._tokens.renew(client.principal, token_hmac, period_ms)
        except RequestError as error:
            return RenewDelegationTokenResponse(error_code=error.error)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
