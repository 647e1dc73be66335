"""Handlers of quotas, logins, credentials and delegation tokens.

| subject | handlers |
|---|---|
| quotas | `alter_client_quotas`, `describe_client_quotas` |
| login, after it and where there is none | `sasl_handshake`, `sasl_authenticate` |
| credentials | `describe_user_scram_credentials`, `alter_user_scram_credentials` |
| delegation tokens | `create_delegation_token`, `describe_delegation_token` |
| their lifetimes | `expire_delegation_token`, `renew_delegation_token` |
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.quotas.quota_changes import QuotaChanges
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.security.api.alter_client_quotas import AlterClientQuotas
from lockstep.broker.security.api.alter_user_scram_credentials import AlterUserScramCredentials
from lockstep.broker.security.api.create_delegation_token import CreateDelegationToken
from lockstep.broker.security.api.describe_client_quotas import DescribeClientQuotas
from lockstep.broker.security.api.describe_delegation_token import DescribeDelegationToken
from lockstep.broker.security.api.describe_user_scram_credentials import DescribeUserScramCredentials
from lockstep.broker.security.api.expire_delegation_token import ExpireDelegationToken
from lockstep.broker.security.api.renew_delegation_token import RenewDelegationToken
from lockstep.broker.security.api.sasl_authenticate import SaslAuthenticate
from lockstep.broker.security.api.sasl_handshake import SaslHandshake
from lockstep.broker.security.delegation_tokens import DelegationTokens
from lockstep.broker.security.scram_users import ScramUsers
from lockstep.broker.security.token_request_policy import TokenRequestPolicy
from lockstep.storage.rate_limited_log import RateLimitedLog


def build_handlers(
    rate_limited_log: RateLimitedLog,
    scram_users: ScramUsers,
    tokens: DelegationTokens,
    token_request_policy: TokenRequestPolicy,
    quotas: QuotaTable,
    quota_changes: QuotaChanges,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package. Args: rate_limited_log: the log of client errors."""
    return [
        AlterClientQuotas(quota_changes, authorizer),
        AlterUserScramCredentials(scram_users, authorizer),
        CreateDelegationToken(tokens, token_request_policy, authorizer),
        DescribeClientQuotas(quotas, authorizer),
        DescribeDelegationToken(tokens, token_request_policy, authorizer),
        DescribeUserScramCredentials(scram_users, authorizer),
        ExpireDelegationToken(tokens, token_request_policy),
        RenewDelegationToken(tokens, token_request_policy),
        SaslAuthenticate(rate_limited_log),
        SaslHandshake(rate_limited_log),
    ]
