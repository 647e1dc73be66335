"""The table of segments: what freeing many of them at once costs, and that it forgets just those."""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from itertools import combinations

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.freed_segments import Run
from lockstep.storage.log.partition_spans import PartitionSpans, runs_of_sequences
from lockstep.storage.types import Checkpoint, OffsetOutOfRange
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker, whole
from tests.storage.log.joined_logs import agree, on_a_simulated_disk
from tests.storage.log.simulated_disk import SimulatedFileSystem

PARTITIONS = range(1, 21)
KEPT = 20
"""The last one: whoever looks from the first on finds it last."""
BODY = b"x" * 100


def filled() -> DataLog:
    """A log of many segments, each with a batch of each partition, most of them below both checkpoints."""
    log, make = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem()), FrameMaker()
    while len(log.segments()) < 12:
        log.append([make.data(*[(number, 1, BODY) for number in PARTITIONS])])
        log.flush()
        if len(log.segments()) == 11:
            log.write_checkpoint(
                Checkpoint(log.last_index, 1, log.next_lsn, log.chain, log.last_time_ms, {"a": b"b"})
            )
    return log


def test_runs_are_as_few_as_can_be() -> None:
    assert runs_of_sequences([1, 2, 5, 6, 7, 9], {1, 2, 5, 7}) == [(1, 5), (7, 7)]
    assert runs_of_sequences([3, 40, 41], {3, 40, 41}) == [(3, 41)]
    assert runs_of_sequences([3, 40], set()) == runs_of_sequences([], {1}) == []


def test_spans_forget_what_lies_in_the_runs_and_nothing_else() -> None:
    there = [2, 3, 5, 8, 9, 11]
    for count in range(len(there) + 1):
        for gone in combinations(there, count):
            spans = PartitionSpans()
            for sequence in there:
                spans.add(10 * sequence, sequence)
            held = spans._pair
            assert spans.remove(runs_of_sequences(range(13), {*gone, 0, 7})) == (count == len(there))
            left = [sequence for sequence in there if sequence not in gone]
            assert [list(each) for each in spans._pair] == [[10 * each for each in left], left]
            assert list(held[1]) == there, "a reader's pair stays as it was"


def test_a_partition_that_begins_while_a_segment_is_replaced_is_not_lost() -> None:
    table = filled()._table
    begun = threading.Thread(target=table.begin, args=(99, 7, 12), daemon=True)
    with table._lock:
        before = table.spans[1]._pair
        begun.start()
        begun.join(0.05)
        assert 99 not in table.spans and begun.is_alive(), "it waits for the replacement"
        assert table.spans[1]._pair is before
    begun.join(10)
    assert table.spans[99].sequences() == [12] and table.spans[99].first_offset == 7


def test_a_reader_that_looks_while_a_partition_s_last_segment_goes_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()
    seen: list[int | None] = []
    real = PartitionSpans.remove

    def remove(self: PartitionSpans, runs: Sequence[Run]) -> bool:
        is_empty = real(self, runs)
        if is_empty:  # what another thread does here, between two steps of the log's own
            seen.extend(
                log.first_offset(number) for number, spans in log._table.spans.items() if spans is self
            )
        return is_empty

    monkeypatch.setattr(PartitionSpans, "remove", remove)
    log._table.remove(list(log._table))
    assert seen and set(seen) == {None}


def test_segments_are_freed_in_one_pass_over_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled()
    calls: list[Sequence[Run]] = []
    real = PartitionSpans.remove

    def remove(self: PartitionSpans, runs: Sequence[Run]) -> bool:
        calls.append(runs)
        return real(self, runs)

    monkeypatch.setattr(PartitionSpans, "remove", remove)
    ends = {share.local_id: share.last_offset + 1 for share in log.segments()[9].partitions()}
    (start,) = [share.first_offset for share in log.segments()[5].partitions_among({KEPT})]
    assert log.free_deleted_segments({**ends, KEPT: start}.__getitem__) == 5
    assert len(calls) == len(PARTITIONS) and calls[0] == [(1, 5)]
    assert log.first_offset(KEPT) == log.first_offset(1) == start
    with pytest.raises(OffsetOutOfRange):
        log.read_cold(KEPT, start - 1, 1, 1 << 40)
    assert whole(log.read_cold(KEPT, start, 1, 1 << 40).buffers)[21:] == BODY


def test_a_kept_segment_is_checked_once_a_pass() -> None:
    log = filled()
    asked: list[int] = []

    def log_start(number: int) -> int:
        asked.append(number)
        return 0 if number == KEPT else 1 << 40

    assert log.free_deleted_segments(log_start) == 0
    assert len(asked) > len(PARTITIONS)
    asked.clear()
    assert log.free_deleted_segments(log_start) == 0
    assert set(asked) == {KEPT} and len(asked) <= len(log.segments())
    assert log.free_deleted_segments(lambda number: 0 if number == 1 else 1 << 40) == 0, (
        "asked first, not alone"
    )


def test_a_join_looks_through_the_cached_indexes_once_and_not_under_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop waits for the lock, and the cache may have a hundred thousand of them."""
    log, model, _, _ = on_a_simulated_disk(6)
    table = log._table
    log.prepare_now()
    for number in (1, 2, 3):
        log.read_cold(number, 0, 1 << 30, 1 << 40)
    old = {segment.serial for segment in table.sealed()}
    assert {serial for serial, _ in table._cache} & old
    forgotten: list[object] = []
    real = table._forget_indexes

    def forget(serials: Container[int]) -> None:
        assert not table._lock._is_owned()  # type: ignore[attr-defined]
        forgotten.append(serials)
        real(serials)

    monkeypatch.setattr(table, "_forget_indexes", forget)
    assert log.join() == 5
    assert forgotten == [old] and not {serial for serial, _ in table._cache} & old
    assert table._cache_bytes == sum(index.memory_bytes for index in table._cache.values())
    agree(log, model)
