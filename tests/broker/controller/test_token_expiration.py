"""Expired delegation tokens are removed, where this node is the controller."""

from __future__ import annotations

import pytest

from lockstep.broker.controller.token_expiration import TokenExpiration
from tests.broker.security.test_delegation_tokens import Cluster


async def test_only_the_controller_removes_expired_tokens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lockstep.security")
    cluster, leads = Cluster(), False
    expiration = TokenExpiration(cluster.tokens, lambda: leads, 500)
    (rule,) = expiration.rules()
    assert rule.interval_ms() == 500
    await cluster.create(lifetime_ms=10)
    await cluster.create()
    cluster.now_ms += 11
    assert await rule.enforce() == 0 and len(cluster.stored) == 2
    leads = True
    assert await rule.enforce() == 1 and list(cluster.stored) == ["id-1"]
    assert await rule.enforce() == 0
    assert [each.getMessage() for each in caplog.records] == ["removed 1 expired delegation tokens"]
