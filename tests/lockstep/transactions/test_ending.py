"""Ends that come at a bad moment: close, assign and cancellation while something is under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from lockstep.testing.memory_log import MemoryConnection, MemoryLog
from lockstep.transactions import (
    Application,
    BlockingTransactionClient,
    Committed,
    Expired,
    TransactionClient,
)
from lockstep.transactions.model import SubscriptionClosed
from tests.lockstep.transactions.accounts import Counters, Increment, until
from tests.support.cases import each_case


def client_of(log: MemoryConnection, application: Application, **options: object) -> TransactionClient:
    return TransactionClient("", "", application, log=log, **options)  # type: ignore[arg-type]


async def test_waits_for_a_subscription_fail_when_it_closes() -> None:
    memory = MemoryLog(1)
    log = memory.connect()
    client = client_of(log, Counters())
    await client.open()
    log.suspend_subscription(0)
    memory.put(0, b"1")
    waiting = asyncio.create_task(client.caught_up())
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(SubscriptionClosed):
        async with asyncio.timeout(5):
            await waiting


async def test_a_transaction_that_has_not_begun_when_the_client_is_closed() -> None:
    memory, counters = MemoryLog(1), Counters()
    client = client_of(memory.connect(), counters)
    await client.open()
    increment = Increment(counters)
    task = await client.submit(increment)
    await client.close()
    with pytest.raises(Expired) as raised:
        await task
    assert raised.value.is_known and increment.told == [("expired", True)] and not memory.entries(0)


async def test_a_snapshot_that_cannot_be_read_stalls_the_feed() -> None:
    memory = MemoryLog(1)
    memory.put(0, b"1", b"2")
    memory.trim(0, 2)
    is_down = False

    class Store(Counters):
        def high_water_mark(self, partition: int) -> int:
            if is_down:
                raise OSError("the database is down")
            return super().high_water_mark(partition)

    counters = Store()
    async with client_of(memory.connect(), counters) as client:
        await until(lambda: len(counters.errors) == 1)
        is_down = True
        client.resume(0)
        await until(lambda: len(counters.errors) == 2)
        assert isinstance(client.stalled_partitions()[0], OSError)
        is_down, counters.marks[0] = False, 1
        client.resume(0)
        async with asyncio.timeout(5):
            await client.caught_up()


async def test_a_partition_has_one_feed_however_often_it_is_assigned() -> None:
    memory = MemoryLog(1)

    class Slow(Counters):
        async def high_water_mark(self, partition: int) -> int:  # type: ignore[override]
            await asyncio.sleep(0.01)
            return super().high_water_mark(partition)

    counters = Slow()
    async with client_of(memory.connect(), counters, partitions=[]) as client:
        await asyncio.gather(*(client.assign([0]) for _ in range(3)))
        memory.put(0, b"1")
        await client.caught_up()
        assert len(counters.applied) == 1 and not client.stalled_partitions()
        feeds = [task for task in asyncio.all_tasks() if task.get_name() == "subscription 0"]
        assert len(feeds) == 1


@each_case("callback", ["on_completion", "on_application"])
async def test_a_callback_that_was_cancelled_is_one_that_failed(callback: str) -> None:
    counters = Counters()

    async def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    async with client_of(MemoryLog(1).connect(), counters) as client:
        async with asyncio.timeout(5):
            increment = Increment(counters)
            setattr(increment, callback, cancelled)
            assert await client.execute(increment) is not None
            assert await client.execute(Increment(counters)) is not None
        assert [(partition, offset) for partition, offset, _ in counters.errors] == [(-1, -1)]


async def test_an_apply_that_was_cancelled_stalls_its_partition() -> None:
    memory = MemoryLog(1)

    class Cancelled(Counters):
        async def apply(self, committed: Committed) -> None:  # type: ignore[override]
            raise asyncio.CancelledError

    async with client_of(memory.connect(), Cancelled()) as client:
        memory.put(0, b"1")
        async with asyncio.timeout(5):
            await until(lambda: bool(client.stalled_partitions()))


def test_what_a_thread_applies_is_not_applied_beside_it() -> None:
    """The partition is assigned anew while a thread, which nobody can stop, applies."""
    applying, goes_on = threading.Event(), threading.Event()

    class Slow(Counters):
        def apply(self, committed: Committed) -> None:
            applying.set()
            assert goes_on.wait(10)
            super().apply(committed)

    def log() -> MemoryConnection:
        memory = MemoryLog(1)
        memory.put(0, b"1")
        return memory.connect()

    counters = Slow()
    with BlockingTransactionClient("", "", counters, log=log) as client:
        assert applying.wait(10)
        threading.Timer(0.2, goes_on.set).start()
        client.assign([])
        client.assign([0])
        client.caught_up(10)
        assert [each.offset for each in counters.applied] == [0] and not counters.errors


async def test_a_rejection_without_an_offset_is_retried_after_a_pause() -> None:
    memory, counters = MemoryLog(1), Counters()
    memory.refuse_next(100_000)
    async with client_of(memory.connect(), counters) as client:
        increment = Increment(counters)
        with pytest.raises(Expired):
            await client.execute(increment, timeout_s=0.5)
        assert 1 <= len(increment.refusals) <= 20


def test_no_thread_is_left_waiting_when_the_client_is_closed() -> None:
    """Transactions, and whoever waits for room, or for brokers that do not answer."""

    class Silent(MemoryConnection):
        async def end(self, partition: int) -> int:
            await asyncio.sleep(3600)
            return -1

    counters, gate = Counters(), threading.Event()
    ends: list[BaseException] = []

    def log() -> MemoryConnection:
        memory = MemoryLog(1)
        memory.put(0, b"1")
        silent = Silent(memory)
        silent.suspend_subscription(0)
        return silent

    client = BlockingTransactionClient("", "", counters, max_outstanding=1, log=log)
    client.open()

    def ended(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            ends.append(error)

    calls: list[Callable[[], object]] = [client.caught_up] * 5
    calls += [lambda: client.execute(Increment(counters))] * 40
    threads = [threading.Thread(target=ended, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    while client.pending_count() == 0:
        gate.wait(0.01)
    gate.wait(0.1)
    client.close()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads) and len(ends) == len(threads)
