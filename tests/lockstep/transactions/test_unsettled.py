"""Tries of which nobody knows, where the feed knows more, or less, than it seems to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from lockstep.testing.memory_log import Fault, MemoryConnection, MemoryLog
from lockstep.transactions import (
    Application,
    Draft,
    Expired,
    NotApplied,
    TransactionClient,
)
from lockstep.transactions.log import AppendAttempt, AppendUnknown
from tests.lockstep.transactions.accounts import Counters, Increment, until


class HeldBack(MemoryConnection):
    """Appends arrive, and their answers do not before the test lets them be lost."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.lost = asyncio.Event()
        self.fences = 0
        self.has_fences = True

    async def append(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        await super().append(append, timeout_s)
        await self.lost.wait()
        raise AppendUnknown("the answer was lost")

    async def fence(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        self.fences += 1
        if not self.has_fences:
            raise AppendUnknown("nobody leads")
        return await super().fence(append, timeout_s)


def client_of(log: MemoryConnection, application: Application, **options: object) -> TransactionClient:
    return TransactionClient("", "", application, log=log, **options)  # type: ignore[arg-type]


class Both(Increment):
    """A record in each of two partitions."""

    def execute(self, draft: Draft) -> None:
        draft.add(b"1", key=b"a", partition=0)
        draft.add(b"1", key=b"a", partition=1)


async def test_a_transaction_seen_by_the_subscription_is_appended_despite_a_fence() -> None:
    log, counters = HeldBack(MemoryLog(1)), Counters()
    log.has_fences = False
    async with client_of(log, counters) as client:
        increment = Increment(counters)
        task = await client.submit(increment)
        await until(lambda: len(increment.told) == 2)
        log.lost.set()
        appended = await task
        assert appended is not None and appended.offsets == {0: 0}
        assert increment.told == [("completed", True), ("applied", 0)]


async def test_what_the_feed_has_brought_is_appended_also_where_the_client_is_closed() -> None:
    log, counters = HeldBack(MemoryLog(1)), Counters()
    async with client_of(log, counters) as client:
        increment = Increment(counters)
        task = await client.submit(increment)
        await until(lambda: len(increment.told) == 2)
    with pytest.raises(NotApplied) as raised:
        await task
    assert raised.value.offsets == {0: 0}
    assert increment.told == [("completed", True), ("applied", 0)]


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_partition_that_stands_still_does_not_hold_up_what_is_known(
    monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    monkeypatch.setattr("lockstep.transactions.client.FENCE_TIMEOUT_S", 0.3)
    memory, counters = MemoryLog(2), Counters()
    log = HeldBack(memory)
    async with client_of(log, counters) as client:
        log.suspend_subscription(1)
        both = Both(counters)
        task = await client.submit(both)
        await until(lambda: len(both.told) == 2)
        log.lost.set()
        if gives_up:
            await until(lambda: log.fences == 1)
            await client.assign([0])
        async with asyncio.timeout(10):
            with pytest.raises(NotApplied) as raised:
                await task
        assert raised.value.offsets == {0: 0}
        assert both.told == [("completed", True), ("applied", 0)]


class Shared(Counters):
    """Somebody else brings its state up to date, too."""

    def copy(self, other: Counters) -> None:
        self.counts, self.marks = dict(other.counts), dict(other.marks)


async def test_a_subscription_that_began_after_an_attempt_does_not_decide_it() -> None:
    """The partition is assigned anew, and the state has been brought beyond the try by somebody else."""
    memory, ours, theirs = MemoryLog(1), Shared(), Counters()
    log = HeldBack(memory)
    log.suspend_subscription(0)
    async with client_of(log, ours) as client, client_of(memory.connect(), theirs) as other:
        increment = Increment(ours)
        task = await client.submit(increment)
        await until(lambda: len(theirs.applied) == 1)
        ours.copy(theirs)
        await client.assign([])
        await client.assign([0])
        log.resume_subscription(0)
        log.lost.set()
        with pytest.raises(Expired) as raised:
            await task
        assert not raised.value.is_known and increment.told == [("expired", False)]
        await other.caught_up()
        assert theirs.counts == {(0, b"a"): 1}


async def test_a_snapshot_after_an_attempt_does_not_decide_it() -> None:
    """It was trimmed, and the state comes from elsewhere."""
    memory, ours, theirs = MemoryLog(1), Shared(), Counters()
    log = HeldBack(memory)
    log.suspend_subscription(0)
    async with client_of(log, ours) as client, client_of(memory.connect(), theirs) as other:
        task = await client.submit(Increment(ours))
        await until(lambda: len(theirs.applied) == 1)
        memory.put(0, b"1")
        await until(lambda: len(theirs.applied) == 2)
        memory.trim(0, 2)
        log.resume_subscription(0)
        await until(lambda: bool(client.stalled_partitions()))
        ours.copy(theirs)
        client.resume(0)
        await until(lambda: client.high_water_mark(0) == 1)
        log.lost.set()
        with pytest.raises(Expired) as raised:
            await task
        assert not raised.value.is_known
        await other.caught_up()
        assert len(theirs.applied) == 2


async def test_a_fence_still_decides_that_it_was_not_appended() -> None:
    memory, counters = MemoryLog(1), Counters()
    async with client_of(memory.connect(), counters) as client:
        await client.execute(Increment(counters))
        memory.fault_next(Fault.LOST)
        appended = await client.execute(Increment(counters))
        assert appended is not None and appended.tries == 2
        assert counters.counts == {(0, b"a"): 2}
