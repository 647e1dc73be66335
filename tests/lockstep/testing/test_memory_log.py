"""The log in memory, by the `Log` protocol alone. Names as in Waltz's MockDriverTest, where it has them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from lockstep.kafka_client.connection import ClientError
from lockstep.testing.memory_log import Fault, MemoryConnection, MemoryLog
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Chunk,
    Log,
    Trimmed,
)
from tests.lockstep.testing.appends import TIMEOUT_S, Writer
from tests.support.cases import each_case

LOCK = b"account/1"


async def connected(memory_log: MemoryLog) -> MemoryConnection:
    connection = memory_log.connect()
    assert await connection.open() == memory_log.partitions
    return connection


def values(memory_log: MemoryLog, partition: int = 0) -> list[bytes | None]:
    return [entry.value for entry in memory_log.entries(partition)]


async def test_basic_1() -> None:
    """One client: what it appends is what it reads, once and in order."""
    memory_log = MemoryLog(1)
    log: Log = await connected(memory_log)
    writer = Writer(log)
    appends = [writer.one(b"transaction %d" % number) for number in range(100)]
    for number, append in enumerate(appends):
        assert await writer.append(append) == {0: number}
        await writer.catch_up(0)
    assert [entry.offset for entry in writer.read_entries] == list(range(100))
    assert [entry.request for entry in writer.read_entries] == [append.request for append in appends]
    assert [entry.value for entry in writer.read_entries] == [
        b"transaction %d" % number for number in range(100)
    ]


async def test_basic_2() -> None:
    """A second client that has applied half of it reads the other half, and both read what it appends."""
    memory_log = MemoryLog(1)
    one, other = Writer(await connected(memory_log)), Writer(await connected(memory_log), "bob")
    for number in range(100):
        await one.append(one.one(b"%d" % number))
    other.positions[0] = 50
    await other.append(other.one(b"extra"))
    await other.catch_up(0)
    await one.catch_up(0)
    assert [entry.value for entry in other.read_entries] == [b"%d" % n for n in range(50, 100)] + [b"extra"]
    assert one.read_entries[50:] != []
    assert [entry.offset for entry in one.read_entries] == list(range(101))
    first, second = one.read_entries[60], other.read_entries[10]
    assert first is not second and first.offset == second.offset


async def test_concurrency_control() -> None:
    """Of two that were computed from the same state under one lock, one is taken."""
    memory_log = MemoryLog(1)
    one, other = Writer(await connected(memory_log)), Writer(await connected(memory_log), "bob")
    outcomes = await asyncio.gather(
        one.append(one.one(write=[LOCK])), other.append(other.one(write=[LOCK])), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, AppendRefused)]
    assert len(refused) == 1 and {0: 0} in outcomes
    assert refused[0].refusal.conflict_offset == 0
    assert memory_log.end(0) == 1


async def test_set_fault_rate() -> None:
    memory_log = MemoryLog(1, seed=3)
    memory_log.fault_rate = 0.5
    writer = Writer(await connected(memory_log))
    unknown: list[AppendAttempt] = []
    for number in range(200):
        append = writer.one(b"%d" % number)
        try:
            await writer.append(append)
        except AppendUnknown:
            unknown.append(append)
    for append in unknown:
        await writer.log.fence(append, TIMEOUT_S)
    stored = len(memory_log.entries(0))
    assert 50 < len(unknown) < 150
    assert 200 - len(unknown) < stored < 200  # some of the unknown ones are there, some are not
    assert memory_log.pending_appends == 0


async def test_force_next_fail() -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    for number in range(100):
        if number % 3 == 0:
            memory_log.fail_next()
            with pytest.raises(AppendFailed):
                await writer.append(writer.one(b"%d" % number))
        else:
            await writer.append(writer.one(b"%d" % number))
    assert values(memory_log) == [b"%d" % number for number in range(100) if number % 3]


async def test_suspend_subscription() -> None:
    """One client's feed stands still while the other's goes on; resumed, it gets everything."""
    memory_log = MemoryLog(1)
    first, second = await connected(memory_log), await connected(memory_log)
    one, other = Writer(first), Writer(second, "bob")
    second.suspend_subscription(0)
    for _ in range(10):
        await one.append(one.one())
    await one.catch_up(0)
    assert len(one.read_entries) == 10
    assert await second.read(0, 0, 0.0) == Chunk((), 0)
    waiting = asyncio.create_task(second.read(0, 0, TIMEOUT_S))
    await asyncio.sleep(0)
    second.resume_subscription(0)
    assert (await waiting).position == 10
    await other.append(other.one(b"extra"))
    await other.catch_up(0)
    assert len(other.read_entries) == 11


async def test_all_feeds_of_a_partition_suspended() -> None:
    memory_log = MemoryLog(2)
    log = await connected(memory_log)
    memory_log.suspend_subscription(1)
    memory_log.put(0, b"here")
    memory_log.put(1, b"there")
    assert (await log.read(0, 0, 0.0)).position == 1
    assert (await log.read(1, 0, 0.0)).position == 0
    assert await log.end(1) == 1
    memory_log.resume_subscription(1)
    assert (await log.read(1, 0, 0.0)).position == 1


async def test_refuse_next() -> None:
    memory_log = MemoryLog(2)
    writer = Writer(await connected(memory_log))
    memory_log.refuse_next(2)
    memory_log.refuse_next(reason="BAD_HEADER", is_final=True)
    found = []
    for _ in range(3):
        with pytest.raises(AppendRefused) as refused:
            await writer.append(writer.one(partition=1))
        found.append(refused.value.refusal)
    assert [(each.reason, each.is_final) for each in found] == [
        ("LOCK", False),
        ("LOCK", False),
        ("BAD_HEADER", True),
    ]
    assert {(each.partition, each.conflict_offset) for each in found} == {(1, None)}
    assert await writer.append(writer.one(partition=1)) == {1: 0}


async def test_expire_next() -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    memory_log.expire_next()
    with pytest.raises(AppendExpired):
        await writer.append(writer.one())
    assert await writer.append(writer.one()) == {0: 0}


@each_case(("fault", "is_there"), [(Fault.LOST, False), (Fault.NO_RESPONSE, True)])
async def test_what_became_of_an_append_without_an_answer(fault: Fault, is_there: bool) -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    memory_log.fault_next(fault)
    append = writer.one(b"lost?")
    with pytest.raises(AppendUnknown):
        await writer.append(append)
    assert memory_log.deliver_pending() == 0
    assert await writer.log.fence(append, TIMEOUT_S) == {0: int(is_there)}
    assert values(memory_log) == [b"lost?"] * is_there


async def test_an_append_under_way_lands_until_it_is_fenced() -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    memory_log.fault_next(Fault.PENDING)
    with pytest.raises(AppendUnknown):
        await writer.append(writer.one(b"late"))
    assert (values(memory_log), memory_log.pending_appends) == ([], 1)
    assert memory_log.deliver_pending() == 1
    assert values(memory_log) == [b"late"]

    fences = set()
    for _ in range(20):  # it arrives just before the fence, or never
        memory_log.fault_next(Fault.PENDING)
        append = writer.one(b"fenced")
        with pytest.raises(AppendUnknown):
            await writer.append(append)
        before = memory_log.end(0)
        position = (await writer.log.fence(append, TIMEOUT_S))[0]
        assert position == memory_log.end(0)
        assert memory_log.deliver_pending() == 0
        fences.add(position - before)
    assert fences == {0, 1}


async def test_an_append_under_way_is_judged_when_it_arrives() -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    memory_log.fault_next(Fault.PENDING)
    with pytest.raises(AppendUnknown):
        await writer.append(writer.one(b"late", write=[LOCK]))
    memory_log.put(0, b"first", append_locks=[LOCK])
    assert memory_log.deliver_pending() == 0
    assert values(memory_log) == [b"first"]


async def test_a_fence_ends_an_append_that_somebody_still_waits_for() -> None:
    memory_log = MemoryLog(1, seed=1)
    writer = Writer(await connected(memory_log))
    append = writer.one()
    memory_log.max_delay_s = 0.01
    waiting = asyncio.create_task(writer.append(append))
    await asyncio.sleep(0)
    memory_log.max_delay_s = 0.0
    await writer.log.fence(append, TIMEOUT_S)
    with pytest.raises(AppendFailed, match="fenced"):
        await waiting
    assert memory_log.end(0) == 0


async def test_a_fence_that_fails_is_retried() -> None:
    memory_log = MemoryLog(1, seed=5)
    memory_log.fence_fault_rate = 1.0
    writer = Writer(await connected(memory_log))
    memory_log.fault_next(Fault.PENDING)
    append = writer.one()
    with pytest.raises(AppendUnknown):
        await writer.append(append)
    for _ in range(10):
        with pytest.raises(AppendUnknown):
            await writer.log.fence(append, TIMEOUT_S)
    assert memory_log.pending_appends == 0
    memory_log.fence_fault_rate = 0.0
    assert await writer.log.fence(append, TIMEOUT_S) == {0: memory_log.end(0)}


async def test_a_delay_beyond_the_timeout_leaves_it_open() -> None:
    memory_log = MemoryLog(1, seed=2)
    memory_log.max_delay_s = 0.02
    writer = Writer(await connected(memory_log))
    unknown = 0
    for _ in range(20):
        append = writer.one()
        try:
            await writer.log.append(append, 0.01)
        except AppendUnknown:
            unknown += 1
            await writer.log.fence(append, TIMEOUT_S)
    assert 0 < 20 - unknown <= len(memory_log.entries(0)) < 20


async def test_an_append_whose_caller_is_gone_is_under_way() -> None:
    memory_log = MemoryLog(1)
    memory_log.max_delay_s = TIMEOUT_S
    writer = Writer(await connected(MemoryLog(1)))
    writer.log = await connected(memory_log)
    task = asyncio.create_task(writer.append(writer.one()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (memory_log.pending_appends, memory_log.deliver_pending(), memory_log.end(0)) == (1, 1, 1)


async def test_gaps_are_read_over() -> None:
    memory_log = MemoryLog(1, seed=4)
    memory_log.gap_rate = 0.5
    writer = Writer(await connected(memory_log))
    for number in range(50):
        await writer.append(writer.one(b"%d" % number))
    memory_log.skip(0, 2)
    await writer.catch_up(0)
    offsets = [entry.offset for entry in writer.read_entries]
    assert len(offsets) == 50
    assert {1, 2, 3, 4} == {after - before for before, after in pairwise(offsets)}
    assert writer.positions[0] == memory_log.end(0) > offsets[-1] + 2
    assert await writer.append(writer.one(expected=memory_log.end(0))) == {0: writer.positions[0]}


async def test_a_gap_alone_moves_the_reader() -> None:
    memory_log = MemoryLog(1)
    log = await connected(memory_log)
    waiting = asyncio.create_task(log.read(0, 0, TIMEOUT_S))
    await asyncio.sleep(0)
    memory_log.skip(0)
    assert await waiting == Chunk([], 1)


async def test_trimmed() -> None:
    memory_log = MemoryLog(1)
    writer = Writer(await connected(memory_log))
    await writer.append(writer.one(write=[LOCK]))
    await writer.append(writer.one(records=3))
    memory_log.trim(0, 2)  # within the second one, which stays
    with pytest.raises(Trimmed):
        await writer.log.read(0, 0, 0.0)
    assert [entry.offset for entry in (await writer.log.read(0, 1, 0.0)).entries] == [3]
    with pytest.raises(AppendRefused) as refused:
        await writer.append(writer.one(write=[LOCK]))
    assert (refused.value.refusal.reason, refused.value.refusal.is_final) == ("TRIMMED", True)
    assert await writer.append(writer.one(write=[LOCK], hwm=3)) == {0: 4}
    memory_log.trim(0, 100)
    assert (await writer.log.read(0, 5, 0.0)).position == 5


async def test_reads_are_cut() -> None:
    memory_log = MemoryLog(1)
    memory_log.max_read_transactions = 4
    writer = Writer(await connected(memory_log))
    for _ in range(10):
        memory_log.put(0, b"a", b"b")
    assert [entry.offset for entry in (await writer.log.read(0, 0, 0.0)).entries] == [1, 3, 5, 7]
    await writer.catch_up(0)
    assert [entry.offset for entry in writer.read_entries] == list(range(1, 20, 2))
    assert {len(entry.records) for entry in writer.read_entries} == {2}


async def test_what_no_client_may_send() -> None:
    memory_log = MemoryLog(2)
    writer = Writer(await connected(memory_log))
    append = writer.one()
    await writer.append(append)
    for wrong in (append, writer.of({}), writer.one(records=0), writer.one(partition=2)):
        with pytest.raises(ValueError, match="request ann/1/"):
            await writer.append(wrong)
    closed = memory_log.connect()
    with pytest.raises(ClientError):
        await closed.end(0)
    await closed.open()
    await closed.close()
    with pytest.raises(ClientError):
        await closed.read(0, 0, 0.0)


async def test_the_same_seed_makes_the_same_log() -> None:
    async def history(seed: int) -> list[tuple[int, bytes | None]]:
        memory_log = MemoryLog(1, seed=seed)
        memory_log.fault_rate, memory_log.gap_rate = 0.4, 0.3
        writer = Writer(await connected(memory_log))
        for number in range(60):
            await writer.settled(writer.one(b"%d" % number))
        return [(entry.offset, entry.value) for entry in memory_log.entries(0)]

    assert await history(1) == await history(1) != await history(2)


@each_case("seed", range(20))
async def test_counters_under_write_locks_are_exact_under_faults(seed: int) -> None:
    """Several clients count under one lock; nothing is lost or doubled, whatever fails."""
    memory_log = MemoryLog(2, seed=seed)
    memory_log.fault_rate, memory_log.fence_fault_rate, memory_log.gap_rate = 0.3, 0.3, 0.2
    memory_log.max_delay_s = 0.0005
    memory_log.refuse_next(3)
    logs = {name: await connected(memory_log) for name in ("ann", "bob", "cid")}
    counted = await asyncio.gather(*[_count(log, name, seed % 2) for name, log in logs.items()])
    told = [int(value or b"") for value in values(memory_log, seed % 2)]
    assert told == list(range(1, sum(counted) + 1))
    assert counted == [10, 10, 10]


async def _count(log: Log, name: str, partition: int) -> int:
    writer = Writer(log, name)
    done = 0
    while done < 10:
        await writer.catch_up(partition)
        counter = int(writer.read_entries[-1].value or b"") if writer.read_entries else 0
        hwm = writer.positions.get(partition, 0) - 1
        append = writer.one(b"%d" % (counter + 1), partition=partition, hwm=hwm, write=[LOCK])
        try:
            done += await writer.settled(append)
        except AppendRefused as refused:
            assert not refused.refusal.is_final
    return done
