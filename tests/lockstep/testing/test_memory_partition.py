"""The rules of docs/locks.md, one by one, on a log in memory."""

from __future__ import annotations

import pytest

from lockstep.testing.memory_log import MemoryConnection, MemoryLog
from lockstep.transactions.log import AppendRefused, PartitionBatch, ReadLocks, Trimmed
from lockstep.transactions.model import Record, Refusal
from tests.lockstep.testing.appends import Writer

A, B = b"account/1", b"account/2"


@pytest.fixture
def memory_log() -> MemoryLog:
    return MemoryLog(3)


@pytest.fixture
async def writer(memory_log: MemoryLog) -> Writer:
    connection: MemoryConnection = memory_log.connect()
    await connection.open()
    return Writer(connection)


async def refusal(writer: Writer, append: object) -> Refusal:
    with pytest.raises(AppendRefused) as refused:
        await writer.append(append)  # type: ignore[arg-type]
    return refused.value.refusal


async def test_a_mark_is_the_last_offset_of_its_batch(memory_log: MemoryLog, writer: Writer) -> None:
    await writer.append(writer.one(records=3, write=[A]))
    assert memory_log.lock_version(0, A) == 2
    found = await refusal(writer, writer.one(write=[A], hwm=1))
    assert (found.reason, found.is_final, found.partition) == ("LOCK", False, 0)
    assert (found.conflict_offset, found.is_exact, found.lock) == (2, True, A)
    assert found.text == (
        "LOCKSTEP_REFUSED reason=LOCK record=0 topic-partition=memory-0 lock=account%2F1 mode=W hwm=1 "
        "conflict_offset=2 exact"
    )
    await writer.append(writer.one(write=[A], hwm=2))
    assert memory_log.lock_version(0, A) == 3


async def test_a_read_lock_is_checked_and_raises_nothing(memory_log: MemoryLog, writer: Writer) -> None:
    memory_log.put(0, b"", append_locks=[A])
    found = await refusal(writer, writer.one(read=[A]))
    assert "mode=R" in found.text
    await writer.append(writer.one(read=[A], hwm=0))
    await writer.append(writer.one(read=[A], hwm=0))
    assert memory_log.lock_version(0, A) == 0


async def test_an_append_lock_is_never_refused_and_raises(memory_log: MemoryLog, writer: Writer) -> None:
    for offset in range(3):
        await writer.append(writer.one(append=[A]))
        assert memory_log.lock_version(0, A) == offset
    assert (await refusal(writer, writer.one(read=[A], hwm=1))).conflict_offset == 2


async def test_locks_belong_to_their_partition(memory_log: MemoryLog, writer: Writer) -> None:
    await writer.append(writer.one(write=[A]))
    await writer.append(writer.one(partition=1, write=[A]))
    assert memory_log.lock_version(2, A) == -1


async def test_a_mark_that_cannot_have_been_read_is_ahead(memory_log: MemoryLog, writer: Writer) -> None:
    memory_log.put(0, b"")
    found = await refusal(writer, writer.one(write=[A], hwm=1))
    assert (found.reason, found.is_final, found.conflict_offset) == ("AHEAD", True, None)
    await writer.append(writer.one(append=[A], hwm=99))  # nothing that it would matter for


async def test_an_expected_offset(memory_log: MemoryLog, writer: Writer) -> None:
    await writer.append(writer.one(expected=0))
    memory_log.skip(0, 2)
    below = await refusal(writer, writer.one(expected=1))
    assert (below.reason, below.is_final, below.conflict_offset) == ("EXPECTED_OFFSET", False, 2)
    beyond = await refusal(writer, writer.one(expected=4))
    assert (beyond.reason, beyond.is_final, beyond.conflict_offset) == ("EXPECTED_OFFSET", True, None)
    assert await writer.append(writer.one(expected=3, records=2)) == {0: 4}


async def test_a_read_lock_elsewhere_has_a_mark_of_its_own(memory_log: MemoryLog, writer: Writer) -> None:
    for _ in range(5):
        memory_log.put(0, b"", append_locks=[A])
    memory_log.put(1, b"", append_locks=[B])
    found = await refusal(writer, writer.one(write=[A], hwm=4, other_read_locks={1: ReadLocks(-1, (B,))}))
    assert (found.partition, found.conflict_offset, found.lock) == (1, 0, B)
    assert memory_log.lock_version(0, A) == 4
    found = await refusal(writer, writer.one(write=[A], hwm=4, other_read_locks={1: ReadLocks(1, (B,))}))
    assert (found.reason, found.partition) == ("AHEAD", 1)
    found = await refusal(writer, writer.one(other_read_locks={3: ReadLocks(-1, (B,))}))
    assert (found.reason, found.is_final) == ("UNKNOWN_PARTITION", True)
    await writer.append(writer.one(write=[A], hwm=4, other_read_locks={1: ReadLocks(0, (B,))}))
    assert memory_log.lock_version(1, B) == 0


async def test_several_partitions_all_or_none(memory_log: MemoryLog, writer: Writer) -> None:
    memory_log.put(2, b"", append_locks=[B])

    def both(hwm: int) -> dict[int, PartitionBatch]:
        record = (Record(b"half"),)
        return {0: PartitionBatch(record, -1, (A,)), 2: PartitionBatch(record, hwm, (B,))}

    found = await refusal(writer, writer.of(both(-1)))
    assert (found.partition, found.lock) == (2, B)
    assert (memory_log.end(0), memory_log.end(2), memory_log.lock_version(0, A)) == (0, 1, -1)
    assert await writer.append(writer.of(both(0))) == {0: 0, 2: 1}
    assert memory_log.entries(0)[0].request == memory_log.entries(2)[1].request
    assert (memory_log.lock_version(0, A), memory_log.lock_version(2, B)) == (0, 1)


async def test_read_and_write_of_one_lock_in_one_request(memory_log: MemoryLog, writer: Writer) -> None:
    await writer.append(writer.one(read=[A], write=[A], append=[A], records=2))
    assert memory_log.lock_version(0, A) == 1


async def test_too_many_names(writer: Writer) -> None:
    names = [b"%d" % number for number in range(200)]
    await writer.append(writer.one(append=names))
    found = await refusal(writer, writer.one(append=names, other_read_locks={1: ReadLocks(-1, tuple(names))}))
    assert (found.reason, found.is_final) == ("TOO_MANY_LOCKS", True)


async def test_a_transaction_is_trimmed_as_a_whole_and_marks_stay(
    memory_log: MemoryLog, writer: Writer
) -> None:
    connection = memory_log.connect()
    await connection.open()
    for records in (2, 3, 1):
        await writer.append(writer.one(records=records, append=[A]))
    memory_log.trim(0, 3)
    assert [each.offset for each in (await connection.read(0, 2, 0.01)).entries] == [4, 5]
    with pytest.raises(Trimmed):
        await connection.read(0, 1, 0.01)
    memory_log.trim(0, 1)
    assert (await connection.read(0, 2, 0.01)).entries[0].offset == 4, "a log start never goes back"
    memory_log.trim(0, 100)
    assert not (await connection.read(0, 6, 0.01)).entries and memory_log.lock_version(0, A) == 5
    found = await refusal(writer, writer.one(write=[A], hwm=2))
    assert (found.reason, found.is_final) == ("TRIMMED", True)


async def test_offsets_that_nobody_sees(memory_log: MemoryLog, writer: Writer) -> None:
    memory_log.skip(0, 2)
    assert await writer.append(writer.one()) == {0: 2}
