"""Transaction clients on one log in memory: counters under write locks end with the exact sum."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from lockstep.testing.memory_log import Fault, MemoryLog
from lockstep.transactions import (
    Application,
    Committed,
    Draft,
    Expired,
    NotAppended,
    Refusal,
    RefusedForGood,
    Transaction,
    TransactionClient,
    lock,
)
from tests.support.cases import each_case

PARTITIONS = 3


class Counters(Application):
    """One counter per partition, which is what its last record says."""

    def __init__(self) -> None:
        self.counts = [0] * PARTITIONS
        self.marks = [-1] * PARTITIONS

    def high_water_mark(self, partition: int) -> int:
        return self.marks[partition]

    def apply(self, committed: Committed) -> None:
        assert committed.previous == self.marks[committed.partition] < committed.offset
        self.counts[committed.partition] = int(committed.value or b"")
        self.marks[committed.partition] = committed.offset


class Add(Transaction):
    """To one counter; or to two at once."""

    def __init__(self, counters: Counters, *partitions: int) -> None:
        self.counters = counters
        self.partitions = partitions
        self.told: list[str] = []
        self.refused = asyncio.Event()

    def partition(self, partitions: int) -> int:
        return self.partitions[0]

    def execute(self, draft: Draft) -> None:
        for partition in self.partitions:
            draft.add(b"%d" % (self.counters.counts[partition] + 1), partition=partition)
            draft.write_lock(lock("counter", partition), partition=partition)

    def on_completion(self, is_appended: bool) -> None:
        self.told.append("completion")

    def on_application(self, committed: Committed) -> None:
        self.told.append("application")

    def on_refusal(self, refusal: Refusal) -> None:
        self.told.append("refusal")
        self.refused.set()


def client_of(memory_log: MemoryLog, counters: Counters) -> TransactionClient:
    return TransactionClient("", "counters", counters, log=memory_log.connect(), timeout_s=30.0)


def counted(memory_log: MemoryLog, partition: int) -> list[int]:
    return [int(entry.value or b"") for entry in memory_log.entries(partition)]


@each_case("seed", range(10))
async def test_counters_of_several_clients_are_exact(seed: int) -> None:
    memory_log = MemoryLog(PARTITIONS, seed=seed)
    memory_log.fault_rate, memory_log.gap_rate, memory_log.max_delay_s = 0.2, 0.2, 0.001
    counters = [Counters() for _ in range(3)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(memory_log, each)) for each in counters]
        work = [
            client.execute(Add(own, number % PARTITIONS))
            for number in range(8)
            for client, own in zip(clients, counters, strict=True)
        ]
        work += [client.execute(Add(own, 0, 2)) for client, own in zip(clients, counters, strict=True)]
        outcomes = await asyncio.gather(*work)
        await asyncio.gather(*(client.caught_up() for client in clients))
    assert all(outcomes)
    expected = [9 + 3, 9, 6 + 3]
    assert [own.counts for own in counters] == [expected] * 3
    for partition, count in enumerate(expected):
        assert counted(memory_log, partition) == list(range(1, count + 1))
    pairs = [{entry.request for entry in memory_log.entries(each)} for each in (0, 2)]
    assert len(pairs[0] & pairs[1]) == 3


async def test_a_forced_refusal_is_executed_again() -> None:
    memory_log, counters = MemoryLog(PARTITIONS), Counters()
    async with client_of(memory_log, counters) as client:
        memory_log.refuse_next(2)
        add = Add(counters, 1)
        appended = await client.execute(add)
        assert appended is not None and appended.tries == 3
        await client.caught_up()
    assert add.told == ["refusal", "refusal", "completion", "application"]
    assert counted(memory_log, 1) == [1]


async def test_what_is_refused_for_good_fails_or_expires_is_not_there() -> None:
    memory_log, counters = MemoryLog(PARTITIONS), Counters()
    async with client_of(memory_log, counters) as client:
        memory_log.refuse_next(reason="BAD_HEADER", is_final=True)
        with pytest.raises(RefusedForGood):
            await client.execute(Add(counters, 0))
        memory_log.fail_next()
        with pytest.raises(NotAppended):
            await client.execute(Add(counters, 0))
        memory_log.expire_next()
        with pytest.raises(Expired) as expired:
            await client.execute(Add(counters, 0))
    assert expired.value.is_known
    assert counted(memory_log, 0) == []


@each_case("fault", list(Fault))
async def test_whatever_became_of_a_try_it_counts_once(fault: Fault) -> None:
    memory_log, counters = MemoryLog(PARTITIONS), Counters()
    async with client_of(memory_log, counters) as client:
        for expected in range(1, 11):
            memory_log.fault_next(fault)
            assert await client.execute(Add(counters, 0)) is not None
            assert counted(memory_log, 0) == list(range(1, expected + 1))


async def test_a_client_whose_feed_stands_still_waits_for_it() -> None:
    memory_log = MemoryLog(PARTITIONS)
    one, other = Counters(), Counters()
    connection = memory_log.connect()
    late = TransactionClient("", "counters", other, log=connection)
    async with client_of(memory_log, one) as client, late:
        connection.suspend_subscription(0)
        for _ in range(5):
            await client.execute(Add(one, 0))
        add = Add(other, 0)
        waiting = await late.submit(add)
        await add.refused.wait()
        assert (other.counts[0], memory_log.end(0)) == (0, 5)
        connection.resume_subscription(0)
        assert await waiting is not None
    assert counted(memory_log, 0) == [1, 2, 3, 4, 5, 6]


async def test_a_fence_that_fails_leaves_it_open() -> None:
    memory_log, counters = MemoryLog(PARTITIONS), Counters()
    memory_log.fence_fault_rate = 1.0
    async with client_of(memory_log, counters) as client:
        memory_log.fault_next(Fault.PENDING)
        with pytest.raises(Expired) as expired:
            await client.execute(Add(counters, 0))
    assert not expired.value.is_known
