"""The handlers of broker/security/api, called without a broker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import pytest

from lockstep.broker.metadata.quota_commands import apply_quota_command, quota_command
from lockstep.broker.quotas.quota_changes import QuotaChange, QuotaChanges
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.security import api
from lockstep.broker.security.delegation_tokens import (
    DelegationTokenCache,
    DelegationTokenRules,
    DelegationTokens,
    TokenChange,
)
from lockstep.broker.security.scram import Credential
from lockstep.broker.security.scram_users import ScramChange, ScramUsers
from lockstep.broker.security.token_request_policy import TokenRequestPolicy
from lockstep.storage.rate_limited_log import RateLimitedLog
from tests.broker.fakes import Caller


@pytest.fixture
def caller() -> Caller:
    stored: dict[tuple[str, str], Credential] = {}

    async def record(changes: Sequence[ScramChange]) -> None:
        for each in changes:
            stored.pop((each.mechanism, each.user), None)
            if each.credential is not None:
                stored[each.mechanism, each.user] = each.credential

    log = RateLimitedLog(time.monotonic, logging.getLogger("lockstep.connection"))
    tokens = DelegationTokens(DelegationTokenRules(), DelegationTokenCache(), _record_nothing, lambda: 0, str)
    users, token_request_policy = (
        ScramUsers(lambda: stored, record),
        TokenRequestPolicy(lambda listener: listener),
    )
    quotas = QuotaTable()

    async def record_quotas(changes: Sequence[QuotaChange]) -> None:
        for each in changes:
            apply_quota_command(quotas, quota_command(*each))

    changes = QuotaChanges(quotas, record_quotas, asyncio.Lock())
    return Caller(*api.build_handlers(log, users, tokens, token_request_policy, quotas, changes))


async def _record_nothing(changes: Sequence[TokenChange]) -> None:
    """A controller that has no tokens."""
