"""Handlers of security; those of absent features respond as an Apache Kafka whose feature is not enabled.

| subject | handlers |
|---|---|
| access rules | `create_acls`, `delete_acls`, `describe_acls` |
| quotas | `alter_client_quotas`, `describe_client_quotas` |
| login, after it and where there is none | `sasl_handshake`, `sasl_authenticate` |
| credentials | `describe_user_scram_credentials`, `alter_user_scram_credentials` |
| delegation tokens | `create_delegation_token`, `describe_delegation_token` |
| their lifetimes | `expire_delegation_token`, `renew_delegation_token` |
"""

from __future__ import annotations

from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.security.api.alter_client_quotas import AlterClientQuotas
from lockstep.broker.security.api.alter_user_scram_credentials import AlterUserScramCredentials
from lockstep.broker.security.api.create_acls import CreateAcls
from lockstep.broker.security.api.create_delegation_token import CreateDelegationToken
from lockstep.broker.security.api.delete_acls import DeleteAcls
from lockstep.broker.security.api.describe_acls import DescribeAcls
from lockstep.broker.security.api.describe_client_quotas import DescribeClientQuotas
from lockstep.broker.security.api.describe_delegation_token import DescribeDelegationToken
from lockstep.broker.security.api.describe_user_scram_credentials import DescribeUserScramCredentials
from lockstep.broker.security.api.expire_delegation_token import ExpireDelegationToken
from lockstep.broker.security.api.renew_delegation_token import RenewDelegationToken
from lockstep.broker.security.api.sasl_authenticate import SaslAuthenticate
from lockstep.broker.security.api.sasl_handshake import SaslHandshake
from lockstep.broker.security.scram_users import ScramUsers
from lockstep.storage.rate_limited_log import RateLimitedLog


def build_handlers(rate_limited_log: RateLimitedLog, scram_users: ScramUsers) -> list[RequestHandler]:
    """Builds the handlers of this package. Args: rate_limited_log: the log of client errors."""
    return [
        AlterClientQuotas(),
        AlterUserScramCredentials(scram_users),
        CreateAcls(),
        CreateDelegationToken(),
        DeleteAcls(),
        DescribeAcls(),
        DescribeClientQuotas(),
        DescribeDelegationToken(),
        DescribeUserScramCredentials(scram_users),
        ExpireDelegationToken(),
        RenewDelegationToken(),
        SaslAuthenticate(rate_limited_log),
        SaslHandshake(rate_limited_log),
    ]
