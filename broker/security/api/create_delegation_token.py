"""CreateDelegationToken: a token with which others log in as its owner (KIP-48, KIP-373).

Kafka's order of errors: the connection, the permission for another owner, the renewers, and only then whether
there are tokens.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import USER_TYPE, KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.broker.security.delegation_tokens import DelegationTokens
from lockstep.broker.security.token_request_policy import NO_TIME, TokenRequestPolicy
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

REQUESTER_MIN_VERSION = 3


class CreateDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.CREATE_DELEGATION_TOKEN
    versions = (1, 3)
    needs = Needs.CONTROLLER

    def __init__(
        self,
        tokens: DelegationTokens,
        token_request_policy: TokenRequestPolicy,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._tokens, self._token_request_policy = tokens, token_request_policy
        self._access = authorizer.access(self.api_key)

    def is_local(self, client: ClientContext, request: CreateDelegationTokenRequest) -> bool:
        """True for a client that is rejected where it is connected."""
        return not self._token_request_policy.is_allowed(client)

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        """The token, or the error with the principals that it would have had."""
        requester = owner = client.principal
        if request.owner_principal_name:
            owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
        response = CreateDelegationTokenResponse(
            principal_type=owner.principal_type, principal_name=owner.name
        )
        if header.api_version >= REQUESTER_MIN_VERSION:
            response.token_requester_principal_type = requester.principal_type
            response.token_requester_principal_name = requester.name
        if not self._token_request_policy.is_allowed(client):
            return _reject(response, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if owner != requester and not self._access.allows(
            client, AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)
        ):
            return _reject(response, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            return _reject(response, ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers = [KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers]
        try:
            token = await self._tokens.create(owner, requester, renewers, request.max_lifetime_ms)
        except RequestError as error:
            response.error_code = error.error
            return response
        response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_ms, token.max_ms
        response.expiry_timestamp_ms = token.expiry_ms
        response.token_id, response.hmac = token.token_id, self._tokens.hmac_of(token)
        return response


def _reject(response: CreateDelegationTokenResponse, error: ErrorCode) -> CreateDelegationTokenResponse:
    response.error_code = error
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    return response
