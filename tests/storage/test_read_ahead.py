"""What a sequential reader asks for next is read before it asks; nobody is given what he may not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.storage.partition import PartitionLog
from lockstep.storage.read_ahead import (
    DENSE_BYTES,
    KEEP_SECONDS,
    MAX_BYTES,
    MAX_EXPECTED_READS,
    MIN_BYTES,
    ReadAhead,
)
from lockstep.storage.types import OffsetOutOfRange, ReadResult

END = 10_000
STEP = 100
"""Offsets in each range."""


class Loop:
    """Callbacks in turns, and timers."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.soon.append((callback, arguments))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        self.timers.append((seconds, callback))

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback, arguments in soon:
            callback(*arguments)

    def turns(self) -> None:
        while self.soon:
            self.turn()

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


class Log:
    """A log whose reads are counted: ranges of `size` bytes and `STEP` offsets."""

    def __init__(self, size: int = MIN_BYTES, pieces: int = 1) -> None:
        self.size = size
        self.pieces = pieces
        self.reads: list[tuple[int, int]] = []
        self.refuse: Exception | None = None
        self.cold = False

    def read(self, partition: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> ReadResult:
        self.reads.append((partition.local_id, offset))
        if self.refuse is not None:
            raise self.refuse
        if self.cold:
            return ReadResult([], 0, cold=True)
        return ReadResult([b"%d" % offset] * self.pieces, self.size, next_offset=offset + STEP)


def made(log: Log | None = None) -> tuple[ReadAhead, Loop, Log]:
    loop, log = Loop(), log or Log()
    return ReadAhead(loop, log.read), loop, log  # type: ignore[arg-type]


def ask(
    ahead: ReadAhead, offset: int, partition: PartitionLog, max_bytes: int = MIN_BYTES, end: int = END
) -> bytes:
    return bytes(ahead.read(partition, offset, max_bytes, end).buffers[0])


@pytest.fixture
def partition() -> PartitionLog:
    return PartitionLog(7, bytes(16), 0)


def test_the_third_sequential_read_is_read_ahead(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    assert ask(ahead, 0, partition) == b"0"
    loop.turns()
    assert log.reads == [(7, 0)]  # one read is no sequence
    assert ask(ahead, STEP, partition) == b"100"
    loop.turns()
    assert log.reads == [(7, 0), (7, STEP), (7, 2 * STEP)]
    assert ask(ahead, 2 * STEP, partition) == b"200"
    assert log.reads[-1] == (7, 2 * STEP) and ahead.hits == 1
    loop.turns()
    assert log.reads[-1] == (7, 3 * STEP)


def test_the_answer_leaves_before_the_next_range_is_read(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    ask(ahead, 0, partition)
    ask(ahead, STEP, partition)
    loop.turn()  # in which answers are written
    assert log.reads == [(7, 0), (7, STEP)]
    loop.turn()
    assert log.reads[-1] == (7, 2 * STEP)


def test_a_request_before_the_read_ahead_is_not_read_twice(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    for number in range(3):
        assert ask(ahead, number * STEP, partition) == b"%d" % (number * STEP)
    loop.turns()
    assert log.reads == [(7, 0), (7, STEP), (7, 2 * STEP), (7, 3 * STEP)]


@pytest.mark.parametrize(("size", "max_bytes"), [(MIN_BYTES - 1, MIN_BYTES), (MAX_BYTES + 1, MAX_BYTES + 1)])
def test_little_and_too_much_are_not_read_ahead(partition: PartitionLog, size: int, max_bytes: int) -> None:
    ahead, loop, log = made(Log(size))
    for number in range(4):
        ask(ahead, number * STEP, partition, max_bytes)
        loop.turns()
    assert len(log.reads) == 4 and not loop.timers


def test_batches_that_lie_far_apart_are_not_read_ahead(partition: PartitionLog) -> None:
    for pieces, reads in ((MIN_BYTES // DENSE_BYTES, 3), (MIN_BYTES // DENSE_BYTES + 1, 2)):
        ahead, loop, log = made(Log(pieces=pieces))
        for number in range(2):
            ask(ahead, number * STEP, partition)
            loop.turns()
        assert len(log.reads) == reads


def test_a_batch_above_the_limit_is_not_read_twice(partition: PartitionLog) -> None:
    ahead, loop, log = made(Log(MAX_BYTES))
    for number in range(4):
        ask(ahead, number * STEP, partition, max_bytes=MIN_BYTES)
        loop.turns()
    assert len(log.reads) == 4 and not loop.timers


def test_a_read_limited_by_the_end_is_not_kept_for_a_reader_that_may_get_more(
    partition: PartitionLog,
) -> None:
    ahead, loop, log = made()
    ask(ahead, 0, partition, end=3 * STEP)
    ask(ahead, STEP, partition, end=3 * STEP)
    loop.turns()
    assert log.reads == [(7, 0), (7, STEP), (7, 2 * STEP)]  # up to an end, which has moved on since
    ask(ahead, 2 * STEP, partition, end=END)
    assert log.reads[-1] == (7, 2 * STEP) and len(log.reads) == 4 and ahead.hits == 0


def test_nothing_is_read_ahead_at_the_end(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    ask(ahead, 0, partition, end=2 * STEP)
    ask(ahead, STEP, partition, end=2 * STEP)
    loop.turns()
    assert log.reads == [(7, 0), (7, STEP)]


def with_next_read(partition: PartitionLog) -> tuple[ReadAhead, Loop, Log]:
    """With the range from 2 * STEP on read, up to END, for MIN_BYTES."""
    ahead, loop, log = made()
    ask(ahead, 0, partition)
    ask(ahead, STEP, partition)
    loop.turns()
    assert log.reads.pop() == (7, 2 * STEP)
    return ahead, loop, log


def test_a_reader_with_a_lower_end_does_not_get_what_another_may_read(partition: PartitionLog) -> None:
    ahead, _, log = with_next_read(partition)
    ask(ahead, 2 * STEP, partition, end=END - 1)
    assert log.reads[-1] == (7, 2 * STEP) and ahead.hits == 0


@pytest.mark.parametrize("other", [MIN_BYTES - 1, MIN_BYTES + 1])
def test_a_read_with_other_limits_does_not_use_the_read_ahead(partition: PartitionLog, other: int) -> None:
    ahead, _, log = with_next_read(partition)
    ask(ahead, 2 * STEP, partition, max_bytes=other)
    assert log.reads[-1] == (7, 2 * STEP) and ahead.hits == 0
    ask(ahead, 2 * STEP, partition)
    assert log.reads[-1] == (7, 2 * STEP) and ahead.hits == 1


def test_a_second_reader_of_the_same_keeps_what_was_read(partition: PartitionLog) -> None:
    ahead, loop, log = with_next_read(partition)
    loop.pass_time()
    ask(ahead, STEP, partition)
    loop.turns()
    loop.pass_time()  # it was asked about meanwhile
    ask(ahead, 2 * STEP, partition)
    assert ahead.hits == 1 and log.reads == [(7, 0), (7, STEP), (7, STEP)]


def test_deleted_records_are_not_served_from_the_read_ahead(partition: PartitionLog) -> None:
    ahead, _, log = with_next_read(partition)
    partition.log_start_offset = 2 * STEP + 1
    log.refuse = OffsetOutOfRange("deleted")
    with pytest.raises(OffsetOutOfRange):
        ask(ahead, 2 * STEP, partition)


def test_another_partitions_range_is_not_served(partition: PartitionLog) -> None:
    ahead, _, log = with_next_read(partition)
    ask(ahead, 2 * STEP, PartitionLog(8, bytes(16), 0))
    assert log.reads[-1] == (8, 2 * STEP) and ahead.hits == 0


def test_a_failed_or_cold_read_ahead_is_left_to_the_request(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    ask(ahead, 0, partition)
    ask(ahead, STEP, partition)
    log.refuse = OSError("broken")
    loop.turns()
    log.refuse = None
    assert ask(ahead, 2 * STEP, partition) == b"200" and ahead.hits == 0
    log.cold = True
    loop.turns()
    log.cold = False
    assert ask(ahead, 3 * STEP, partition) == b"300" and ahead.hits == 0


def test_it_holds_no_more_than_a_few_and_forgets_them(partition: PartitionLog) -> None:
    ahead, loop, _ = made()
    partitions = [PartitionLog(number, bytes(16), 0) for number in range(MAX_EXPECTED_READS + 3)]
    for each in partitions:
        ask(ahead, 0, each)
    held = ahead._expected_reads
    assert [number for number, _ in held] == [each.local_id for each in partitions[3:]]
    assert [seconds for seconds, _ in loop.timers] == [KEEP_SECONDS]
    loop.pass_time()
    assert len(held) == MAX_EXPECTED_READS
    ask(ahead, 0, partitions[0])
    loop.pass_time()
    assert list(held) == [(0, STEP)]
    loop.pass_time()
    assert not held and not loop.timers
    ask(ahead, 0, partitions[0])
    assert len(loop.timers) == 1


def test_once_closed_nothing_is_read_ahead(partition: PartitionLog) -> None:
    ahead, loop, log = made()
    ask(ahead, 0, partition)
    ask(ahead, STEP, partition)
    ahead.close()
    loop.turns()
    ask(ahead, 2 * STEP, partition)
    ask(ahead, 3 * STEP, partition)
    loop.turns()
    assert log.reads == [(7, number * STEP) for number in range(4)]
