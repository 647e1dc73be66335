"""Transactions against a real broker, also behind a bad network. In brackets: the tests of Waltz meant."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lockstep.kafka_client.client import Client
from lockstep.protocol.ids import format_uuid
from lockstep.protocol.records.record import BatchBuilder
from lockstep.testing import RunningBroker
from lockstep.transactions import (
    Application,
    Committed,
    Draft,
    Expired,
    HighWaterMarkAhead,
    NotAppended,
    NotApplied,
    Refusal,
    RefusedForGood,
    SubscriptionClosed,
    SubscriptionStalled,
    Transaction,
    TransactionClient,
)
from tests.lockstep.transactions.accounts import Counters, Increment, locked_topic, until
from tests.lockstep.transactions.faulty import ANSWER_LOST, REQUEST_LOST, STUCK, FaultyLog


async def caught_up(*clients: TransactionClient) -> None:
    for client in clients:
        await client.caught_up()


def client_of(
    running: RunningBroker, topic: str, counters: Application, **options: object
) -> TransactionClient:
    return TransactionClient(running.bootstrap_servers, topic, counters, **options)  # type: ignore[arg-type]


class Write(Transaction):
    """Whatever a test wants in the draft."""

    def __init__(self, value: bytes | None = b"1", **asked: object) -> None:
        self.value = value
        self.asked = asked
        self.executions = 0
        self.offsets: list[tuple[int, int]] = []

    def execute(self, draft: Draft) -> bool | None:
        self.executions += 1
        if self.value is None:
            return False
        draft.add(self.value, key=b"k")
        for kind, names in self.asked.items():
            getattr(draft, kind)(*names if isinstance(names, tuple) else (names,))
        return None

    def on_application(self, committed: Committed) -> None:
        self.offsets.append((committed.partition, committed.offset))


async def test_one_transaction_from_execution_to_application(running: RunningBroker) -> None:
    """[testOnApplication, testTransactionContext]"""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client:
        assert client.partition_count == 1 and client.partitions == [0] and client.high_water_mark(0) == -1
        increment = Increment(counters)
        appended = await client.execute(increment)
        assert appended is not None and appended.offsets == {0: 0} and appended.tries == 1
        assert increment.told == [("completed", True), ("applied", 0)]
        assert counters.counts == {(0, b"a"): 1} and client.high_water_mark(0) == 0
        assert counters.applied[0].request is not None
        assert counters.applied[0].request.client == client.client_id
        assert client.pending_count() == 0


async def test_nothing_to_be_done(running: RunningBroker) -> None:
    """`execute` says no: completed, and not appended."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    told: list[bool] = []

    class Nothing(Write):
        def on_completion(self, is_appended: bool) -> None:
            told.append(is_appended)

    async with client_of(running, topic, counters) as client:
        assert await client.execute(Nothing(None)) is None
        assert told == [False] and not counters.applied


async def test_a_refused_transaction_is_executed_again(running: RunningBroker) -> None:
    """[testConcurrencyControlSingleWriteLock, testRetry, testOnLockFailure]: no increment is lost."""
    topic = await locked_topic(running.bootstrap_servers)
    ours, theirs = Counters(), Counters()
    async with client_of(running, topic, ours) as one, client_of(running, topic, theirs) as two:
        increments = [Increment(ours) for _ in range(20)] + [Increment(theirs) for _ in range(20)]
        await asyncio.gather(
            *(one.execute(each) for each in increments[:20]), *(two.execute(each) for each in increments[20:])
        )
        await caught_up(one, two)
        assert ours.counts == theirs.counts == {(0, b"a"): 40}
        refusals = [each for increment in increments for each in increment.refusals]
        assert refusals and {each.reason for each in refusals} == {"LOCK"}
        assert all(each.is_exact and each.conflict_offset is not None for each in refusals)


class Gated(Counters):
    """Applies nothing while the gate is shut, so that it reads what is old."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def apply(self, committed: Committed) -> None:  # type: ignore[override]
        await self.gate.wait()
        super().apply(committed)


async def refused_once(running: RunningBroker, first: Write, second: Write) -> Refusal:
    """What becomes of `second`, computed before `first` was applied."""
    topic = await locked_topic(running.bootstrap_servers)
    stale, told = Gated(), list[Refusal]()
    async with client_of(running, topic, stale) as late, client_of(running, topic, Counters()) as early:
        stale.gate.clear()
        await early.execute(first)
        second.on_refusal = told.append  # type: ignore[method-assign,assignment]
        task = await late.submit(second)
        await until(lambda: bool(told))
        stale.gate.set()
        appended = await task
        assert appended is not None and appended.tries == second.executions == 2
        assert stale.marks[0] == 1
    (refusal,) = told
    return refusal


async def test_read_locks(running: RunningBroker) -> None:
    """[testConcurrencyControlSingleReadLock]: they conflict with writes since, not with each other."""
    topic, counters = await locked_topic(running.bootstrap_servers), Gated()
    async with client_of(running, topic, counters) as client:
        counters.gate.clear()
        reading = [await client.submit(Write(read_lock="a")) for _ in range(5)]
        counters.gate.set()
        assert [each is not None and each.tries for each in await asyncio.gather(*reading)] == [1] * 5
    refusal = await refused_once(running, Write(write_lock="a"), Write(read_lock="a"))
    assert (refusal.reason, refusal.lock, refusal.conflict_offset) == ("LOCK", b"a", 0)


@pytest.mark.parametrize(
    ("first", "second", "by"),
    [
        ({"write_lock": ("a", "b")}, {"write_lock": ("b", "c")}, b"b"),
        ({"append_lock": ("a", "c")}, {"write_lock": "d", "read_lock": "c"}, b"c"),
        ({"append_lock": "a"}, {"write_lock": ("b", "a")}, b"a"),
    ],
)
async def test_several_locks(
    running: RunningBroker, first: dict[str, Any], second: dict[str, Any], by: bytes
) -> None:
    """[testConcurrencyControlMultipleLocks]"""
    refusal = await refused_once(running, Write(**first), Write(**second))
    assert (refusal.lock, refusal.conflict_offset) == (by, 0)


async def test_append_locks_conflict_with_nothing(running: RunningBroker) -> None:
    topic = await locked_topic(running.bootstrap_servers)
    stale = Gated()
    async with client_of(running, topic, stale) as late, client_of(running, topic, Counters()) as early:
        stale.gate.clear()
        await early.execute(Write(write_lock="a"))
        task = await late.submit(Write(append_lock="a"))
        stale.gate.set()
        appended = await task
        assert appended is not None and appended.tries == 1


async def test_feeding_begins_where_the_application_is(running: RunningBroker) -> None:
    """[testCatchUp, testGetTransactionData]"""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client:
        for _ in range(10):
            await client.execute(Increment(counters))
    assert counters.counts == {(0, b"a"): 10}
    later, half = Counters(), Counters()
    half.marks[0] = 4
    async with client_of(running, topic, later) as one, client_of(running, topic, half) as two:
        await caught_up(one, two)
    assert [each.value for each in later.applied] == [b"%d" % number for number in range(1, 11)]
    assert [each.offset for each in half.applied] == [5, 6, 7, 8, 9] and half.applied[0].previous == 4


async def test_what_other_producers_write_is_fed_too(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client, Client(running.bootstrap_servers) as other:
        builder = BatchBuilder()
        builder.append(b"5", b"x", timestamp_ms=7_000, headers=[("h", b"v")])
        builder.append(b"6", b"x", timestamp_ms=8_000)
        await other.produce(await other.topic(topic), 0, builder.build())
        await caught_up(client)
        assert counters.counts == {(0, b"x"): 6}
        first, second = counters.applied
        assert first.request is None and first.headers == (("h", b"v"),)
        assert (first.timestamp_ms, second.timestamp_ms) == (7_000, 8_000)


@pytest.mark.parametrize(
    "fates", [[ANSWER_LOST], [REQUEST_LOST], [STUCK] * 40, [ANSWER_LOST] + [REQUEST_LOST] * 40]
)
async def test_whatever_the_network_does_it_is_there_once(running: RunningBroker, fates: list[str]) -> None:
    """[testAppendFailureDetection, testRegisterTimeout]: what nobody knows is fenced, and the feed tells."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    log = FaultyLog(running.bootstrap_servers, topic)
    async with client_of(running, topic, counters, log=log) as client:
        await client.execute(Increment(counters))
        log.coming.extend(fates)
        increment = Increment(counters)
        task = await client.submit(increment, timeout_s=1.0)
        appended = None
        try:
            appended = await task
        except Expired as error:
            assert error.is_known
        log.coming.clear()
        await log.arrive()
        await client.execute(Increment(counters))
        expected = 2 if appended is None else 3
        assert counters.counts == {(0, b"a"): expected}
        ends = [each for each in increment.told if isinstance(each, tuple)]
        assert ends == ([("expired", True)] if appended is None else [("completed", True), ("applied", 1)])


async def test_an_unknown_try_is_executed_again_only_after_a_fence(running: RunningBroker) -> None:
    """A copy that comes late is refused, so it cannot count twice."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    log = FaultyLog(running.bootstrap_servers, topic)

    class WithoutLocks(Write):
        """Would be taken twice if a late copy were."""

    async with client_of(running, topic, counters, log=log) as client:
        log.coming.append(STUCK)
        log.gives_up = True
        appended = await client.execute(WithoutLocks())
        assert appended is not None and appended.tries == 2
        await log.arrive()
        await caught_up(client)
        assert len(counters.applied) == 1


async def test_a_final_refusal_ends_it(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client:

        class Early(Increment):
            def execute(self, draft: Draft) -> bool | None:
                draft.expect_offset(7)
                return super().execute(draft)

        increment = Early(counters)
        with pytest.raises(RefusedForGood, match="EXPECTED_OFFSET") as raised:
            await client.execute(increment)
        assert raised.value.refusal.is_final
        assert [type(each).__name__ for each in increment.told] == ["Refusal", "RefusedForGood"]


async def test_a_taken_offset_is_not_requested_repeatedly(running: RunningBroker) -> None:
    """Nothing is to be waited for, so there are pauses; and the error says why."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()

    class Late(Increment):
        def execute(self, draft: Draft) -> bool | None:
            draft.expect_offset(0)
            return super().execute(draft)

    async with client_of(running, topic, counters) as client:
        await client.execute(Increment(counters))
        late = Late(counters)
        with pytest.raises(Expired, match="EXPECTED_OFFSET") as raised:
            await client.execute(late, timeout_s=0.5)
        assert raised.value.is_known and 1 < len(late.refusals) < 12


async def test_an_application_that_is_ahead_of_the_log_is_refused(running: RunningBroker) -> None:
    """As where a topic was re-created: what stands there now would never be applied."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client:
        await client.execute(Increment(counters))
    for hwm in (1, 100):
        counters.marks[0] = hwm
        with pytest.raises(HighWaterMarkAhead, match=f"applied {hwm}, and the log ends before 1"):
            await client_of(running, topic, counters).open()
    counters.marks[0] = "0"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="an offset"):
        await client_of(running, topic, counters).open()


async def test_an_application_gets_its_topic(running: RunningBroker) -> None:
    topic = await locked_topic(running.bootstrap_servers)
    heard: list[str] = []

    class Careful(Counters):
        def on_open(self, topic_id: str) -> None:
            heard.append(topic_id)
            if len(heard) > 1 and heard[0] != topic_id:
                raise RuntimeError("another topic")

    async with client_of(running, topic, Careful()), Client(running.bootstrap_servers) as other:
        assert heard == [format_uuid((await other.topic(topic)).topic_id)]
        await other.delete_topic(topic)
        await other.create_topic(topic, configs={"lockstep.locks": "true"})
        with pytest.raises(RuntimeError, match="another topic"):
            await client_of(running, topic, Careful()).open()


async def test_an_application_that_loses_its_high_water_mark_gets_an_error(running: RunningBroker) -> None:
    topic = await locked_topic(running.bootstrap_servers)

    class Forgets(Counters):
        def high_water_mark(self, partition: int) -> int:
            return -1

    forgets = Forgets()
    async with client_of(running, topic, forgets) as client:
        with pytest.raises(NotApplied, match=r"must remember committed\.offset"):
            await client.execute(Increment(forgets), timeout_s=0.5)
        with pytest.raises(SubscriptionStalled, match="must remember"):
            await client.caught_up()


@pytest.mark.parametrize("callback", ["on_application", "on_completion"])
async def test_execute_within_a_callback_would_wait_for_itself(running: RunningBroker, callback: str) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters) as client:

        async def nested(told: object) -> None:
            await client.execute(Write())

        outer = Write()
        setattr(outer, callback, nested)
        await client.execute(outer)
        await until(lambda: bool(counters.errors))
        ((_, _, error),) = counters.errors
        assert isinstance(error, RuntimeError) and "use submit" in str(error)
        with pytest.raises(TypeError, match="no Transaction"):
            await client.execute(lambda draft: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("callback", ["on_application", "on_completion"])
async def test_submit_within_a_callback_waits_for_no_room(running: RunningBroker, callback: str) -> None:
    """Which the transaction has whose callback it is, and others that wait for the feed."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with client_of(running, topic, counters, max_outstanding=1) as client:
        tasks: list[asyncio.Task[Any]] = []

        async def nested(told: object) -> None:
            tasks.append(await client.submit(Write()))

        outer = Write()
        setattr(outer, callback, nested)
        async with asyncio.timeout(10):
            await client.execute(outer)
            await client.flush()
        (task,) = tasks
        assert task.result() is not None and client.pending_count() == 0


async def test_an_exception_in_execute_is_the_callers(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    told: list[BaseException] = []

    class Fails(Transaction):
        def execute(self, draft: Draft) -> bool:
            raise ZeroDivisionError("by zero")

        def on_exception(self, error: BaseException) -> None:
            told.append(error)

    async with client_of(running, topic, counters) as client:
        with pytest.raises(ZeroDivisionError):
            await client.execute(Fails())
        with pytest.raises(NotAppended, match="no record"):
            await client.execute(type("Empty", (Write,), {"execute": lambda self, draft: None})())
        assert isinstance(told[0], ZeroDivisionError) and client.pending_count() == 0


async def test_a_callback_that_fails_changes_nothing(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()

    class Fails(Write):
        def on_application(self, committed: Committed) -> None:
            raise RuntimeError("in a callback")

    async with client_of(running, topic, counters) as client:
        assert await client.execute(Fails()) is not None
        assert await client.execute(Write()) is not None
        ((partition, offset, error),) = counters.errors
        assert (partition, offset, str(error)) == (-1, -1, "in a callback")


async def test_an_exception_in_apply_stalls_its_partition_and_skips_nothing(running: RunningBroker) -> None:
    """[testSuspendResume, testOnApplicationWithRetry]"""
    topic = await locked_topic(running.bootstrap_servers, 2)
    failing = True

    class Fragile(Counters):
        def apply(self, committed: Committed) -> None:
            if failing and committed.partition == 0 and committed.offset == 1:
                raise RuntimeError("cannot apply this")
            super().apply(committed)

    counters = Fragile()
    async with client_of(running, topic, counters) as client:
        await client.execute(Increment(counters))
        with pytest.raises(NotApplied) as raised:
            await client.execute(Write(b"7"), timeout_s=0.5)
        assert raised.value.offsets == {0: 1}
        assert list(client.stalled_partitions()) == [0] and client.high_water_mark(0) == 0
        await client.execute(Increment(counters, partition=1))
        assert len(counters.errors) == 1 and counters.marks == {0: 0, 1: 0}
        client.resume(0)
        await until(lambda: len(counters.errors) == 2)
        failing = False
        client.resume(0)
        await client.caught_up()
        assert counters.marks == {0: 1, 1: 0} and not client.stalled_partitions()


async def test_the_number_of_transactions_under_way_is_bounded(running: RunningBroker) -> None:
    """[testMaxConcurrentTransactions]"""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    gate, running_now, most = asyncio.Event(), 0, 0

    class Slow(Write):
        async def execute(self, draft: Draft) -> bool | None:  # type: ignore[override]
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            await gate.wait()
            running_now -= 1
            return super().execute(draft)

    async with client_of(running, topic, counters, max_outstanding=3) as client:
        tasks = [asyncio.create_task(client.execute(Slow())) for _ in range(8)]
        await until(lambda: running_now == 3)
        await asyncio.sleep(0.05)
        assert client.pending_count() == 3
        gate.set()
        await asyncio.gather(*tasks)
        assert most == 3 and len(counters.applied) == 8
    with pytest.raises(ValueError, match="max_outstanding"):
        client_of(running, topic, counters, max_outstanding=0)


async def test_flush_waits_for_all_and_close_for_none(running: RunningBroker) -> None:
    """[testFlush, testClose, testAbort, testClear]"""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    log = FaultyLog(running.bootstrap_servers, topic)
    client = client_of(running, topic, counters, log=log)
    await client.open()
    tasks = [await client.submit(Write()) for _ in range(5)]
    await client.flush()
    assert all(task.done() for task in tasks) and client.pending_count() == 0
    log.coming.extend([STUCK] * 100)
    waiting = await client.submit(Increment(counters))
    await until(lambda: bool(log.stuck))
    await client.close()
    with pytest.raises(Expired) as raised:
        await waiting
    assert not raised.value.is_known
    with pytest.raises(NotAppended, match="closed"):
        await client.execute(Write())


async def test_partitions_are_assigned_at_run_time(running: RunningBroker) -> None:
    """[testSetPartitionsAutoMountOn, testSetPartitionsAutoMountOff, testAutoMountOn, testSetActivePartitions,
    testWriteToInactivePartition]"""
    topic = await locked_topic(running.bootstrap_servers, 3)
    counters = Counters()
    async with client_of(running, topic, counters, partitions=[0, 2]) as client:
        assert client.partitions == [0, 2]
        with pytest.raises(NotAppended, match="partition 1"):
            await client.execute(Increment(counters, partition=1))
        with pytest.raises(SubscriptionClosed):
            client.high_water_mark(1)
        await client.execute(Increment(counters, partition=2))
        await client.assign([1])
        assert client.partitions == [1]
        await client.execute(Increment(counters, partition=1))
        with pytest.raises(NotAppended, match="partition 2"):
            await client.execute(Increment(counters, partition=2))
        with pytest.raises(ValueError, match="0 to 2"):
            await client.assign([3])
        await client.assign(range(3))
        await client.execute(Increment(counters, partition=2))
        assert counters.counts == {(1, b"a"): 1, (2, b"a"): 2}


async def test_several_partitions_at_once(running: RunningBroker) -> None:
    """An atomic append: one transaction, its parts applied in each partition's feed."""
    topic, counters = await locked_topic(running.bootstrap_servers, 3), Counters()

    class Move(Write):
        def execute(self, draft: Draft) -> None:
            draft.write_lock("from")
            draft.add(b"1", key=b"from")
            draft.write_lock("to", partition=2)
            draft.add(b"2", key=b"to", partition=2)
            draft.add(b"3", key=b"to", partition=2)
            draft.read_lock("rate", partition=1)

    async with client_of(running, topic, counters) as client:
        move = Move()
        appended = await client.execute(move)
        assert appended is not None and appended.offsets == {0: 0, 2: 1}
        assert sorted(move.offsets) == [(0, 0), (2, 1)]
        assert counters.counts == {(0, b"from"): 1, (2, b"to"): 3}


@pytest.mark.parametrize("kind", ["write_lock", "append_lock"])
async def test_locks_that_need_a_record(running: RunningBroker, kind: str) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers, 2), Counters()

    class Wrong(Write):
        def execute(self, draft: Draft) -> None:
            draft.add(b"1")
            getattr(draft, kind)("a", partition=1)

    async with client_of(running, topic, counters) as client:
        with pytest.raises(NotAppended, match="only read locks"):
            await client.execute(Wrong())


async def test_blocking_functions_run_in_threads(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    with ThreadPoolExecutor(4) as threads:
        async with client_of(running, topic, counters, threads=threads) as client:
            await asyncio.gather(*(client.execute(Increment(counters)) for _ in range(10)))
    assert counters.counts == {(0, b"a"): 10}


async def test_a_cancelled_transaction_leaves_the_client_whole(running: RunningBroker) -> None:
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    log = FaultyLog(running.bootstrap_servers, topic)
    async with client_of(running, topic, counters, log=log) as client:
        log.coming.extend([STUCK] * 3)
        task = await client.submit(Write())
        await until(lambda: bool(log.stuck))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        log.coming.clear()
        await client.execute(Increment(counters))
        assert counters.counts == {(0, b"a"): 1}


async def test_open_reports_each_error(running: RunningBroker) -> None:
    class Broken(Counters):
        def high_water_mark(self, partition: int) -> int:
            raise OSError("the database is down")

    topic = await locked_topic(running.bootstrap_servers)
    with pytest.raises(OSError, match="database"):
        await client_of(running, topic, Broken()).open()
    with pytest.raises(ValueError, match="0 to 0"):
        await client_of(running, topic, Counters(), partitions=[1]).open()
