"""The loop over expiration rules, each at its own interval."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from lockstep.broker.coordination.expiration_loop import ExpirationLoop, ExpirationRule


class FakeRule:
    """Counts; `fails`: each enforcement does; `waits`: none ends."""

    def __init__(self, *, fails: bool = False, waits: bool = False) -> None:
        self.enforced = self.started = 0
        self.is_done = asyncio.Event()
        self._fails = fails
        self._waits = waits

    def rule(self, interval_ms: float = 1) -> ExpirationRule:
        return ExpirationRule("a test", lambda: interval_ms, self.enforce, self.start)

    async def start(self) -> None:
        self.started += 1
        if self._fails:
            raise ValueError("planted")

    async def enforce(self) -> None:
        self.enforced += 1
        if self.enforced == 3:
            self.is_done.set()
        if self._fails:
            raise ValueError("planted")
        if self._waits:
            await asyncio.Event().wait()


async def run(rules: list[ExpirationRule], until: FakeRule) -> None:
    """Run the loop until this rule was enforced three times."""
    task = asyncio.ensure_future(ExpirationLoop(rules).run())
    await asyncio.wait_for(until.is_done.wait(), 30)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_rules_are_enforced_at_their_intervals() -> None:
    often, seldom = FakeRule(), FakeRule()
    bare = FakeRule()
    await run([often.rule(), seldom.rule(3_600_000), ExpirationRule("bare", lambda: 1, bare.enforce)], often)
    assert (often.started, seldom.started, seldom.enforced, bare.started) == (1, 1, 0, 0)
    assert bare.enforced > 0


async def test_a_rule_that_waits_or_fails_holds_no_other_up(caplog: pytest.LogCaptureFixture) -> None:
    waiting, failing, other = FakeRule(waits=True), FakeRule(fails=True), FakeRule()
    await run([waiting.rule(), failing.rule(), other.rule()], other)
    assert waiting.enforced == 1
    assert failing.started == 1 and failing.enforced > 1, "a failure ends no rule"
    assert {each.message for each in caplog.records} == {"a test failed"}
