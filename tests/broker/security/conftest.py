"""The handlers of broker/security/api, called without a broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pytest

from lockstep.broker.security import api
from lockstep.broker.security.scram import Credential
from lockstep.broker.security.scram_users import ScramChange, ScramUsers
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
    return Caller(*api.build_handlers(log, ScramUsers(lambda: stored, record)))
