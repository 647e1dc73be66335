"""DescribeDelegationToken: the tokens of some owners or of all that the client may see (KIP-48, KIP-373).

Source: Kafka's KafkaApis.handleDescribeTokensRequest and DelegationTokenManager.filterToken.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.security.delegation_tokens import DelegationToken, DelegationTokens
from lockstep.broker.security.token_request_policy import TokenRequestPolicy
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

REQUESTER_MIN_VERSION = 3


class DescribeDelegationToken(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    versions = (1, 3)

    def __init__(
        self,
        tokens: DelegationTokens,
        token_request_policy: TokenRequestPolicy,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._tokens, self._token_request_policy = tokens, token_request_policy
        self._access = authorizer.access(self.api_key)

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeDelegationTokenRequest
    ) -> HandlerResponse:
        """The tokens, with their secrets; those that the client may not see are left out."""
        if not self._token_request_policy.is_allowed(client):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return DescribeDelegationTokenResponse(error_code=error)
        owners: set[KafkaPrincipal] | None = None
        if request.owners is not None:
            owners = {KafkaPrincipal(each.principal_type, each.principal_name) for each in request.owners}
        try:
            tokens = self._tokens.select(
                lambda token: (owners is None or token.owner in owners) and self._may_see(client, token)
            )
        except RequestError as error:
            return DescribeDelegationTokenResponse(error_code=error.error)
        with_requester = header.api_version >= REQUESTER_MIN_VERSION
        return DescribeDelegationTokenResponse(
            tokens=[self._describe(each, with_requester) for each in tokens]
        )

    def _may_see(self, client: ClientContext, token: DelegationToken) -> bool:
        if token.is_visible_to(client.principal):
            return True
        by_token = AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id
        by_owner = AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner)
        return any(
            self._access.allows(client, *question, is_requested=False) for question in (by_token, by_owner)
        )

    def _describe(self, token: DelegationToken, with_requester: bool) -> DescribedDelegationToken:
        described = DescribedDelegationToken(
            principal_type=token.owner.principal_type,
            principal_name=token.owner.name,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expiry_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=self._tokens.hmac_of(token),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=each.principal_type, principal_name=each.name)
                for each in token.renewers
            ],
        )
        if with_requester:
            described.token_requester_principal_type = token.requester.principal_type
            described.token_requester_principal_name = token.requester.name
        return described
