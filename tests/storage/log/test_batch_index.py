"""Where a segment's batches lie, in memory."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_left

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_index import (
    CLEANED_TIMESTAMP,
    DEAD_PARTITION,
    MAX_MEAN_BYTES,
    BatchIndex,
    add_to_index,
    forget_partition,
)
from lockstep.storage.log.batch_runs import runs_of
from lockstep.storage.log.index_file import IndexHeader, SegmentSummary, encode_index
from tests.storage.log.run_frames import BATCH_LISTS, frame_of, moved

Row = tuple[int, ...]
Batches = list[tuple[int, int, int, int, int]]
HEADER = IndexHeader(7, 2, 9000, 41, 77, 0xDEADBEEF, 3, 1_700_000_000_000)


def entry(
    partition: int, base: int, records: int, length: int, timestamp: int, flags: int = 0, epoch: int = 0
) -> Row:
    return (partition, base, records, length, 0, epoch, timestamp, flags)


def indexed() -> dict[int, BatchIndex]:
    """Two frames, at 4,100 and 5,000: partition 9 has three batches, 2 has two, 5 one that was removed."""
    batches: dict[int, BatchIndex] = {}
    first = [entry(9, 0, 3, 100, 50), entry(2, 7, 1, 10, 40), entry(9, 3, 1, 20, 45)]
    second = [entry(5, 4, 6, 999, 60, ENTRY_REMOVED), entry(9, 4, 2, 30, 44), entry(2, 8, 5, 40, 70)]
    assert add_to_index(batches, first, 4100, memoryview(b"")) == 4230
    assert add_to_index(batches, second, 5000, memoryview(b"")) == 5070  # the removed one takes no room
    return batches


def rows(index: BatchIndex) -> list[Row]:
    return list(zip(index.bases, index.positions, index.lengths, index.timestamps, strict=True))


def file_of(batches: dict[int, BatchIndex]) -> bytes:
    return b"".join(encode_index(HEADER, SegmentSummary.of(batches), batches))


def test_batches_lie_one_after_the_other_from_where_the_payloads_begin() -> None:
    batches = indexed()
    assert rows(batches[9]) == [(0, 4100, 100, 50), (3, 4210, 20, 45), (4, 5000, 30, 44)]
    assert rows(batches[2]) == [(7, 4200, 10, 40), (8, 5030, 40, 70)]
    assert [(batches[n].next_offset, batches[n].total_bytes) for n in (9, 2)] == [(6, 150), (13, 50)]


def test_a_removed_batch_keeps_its_offsets_and_takes_no_bytes() -> None:
    removed = indexed()[5]
    assert rows(removed) == [(4, 5000, 0, CLEANED_TIMESTAMP)]
    assert (removed.next_offset, removed.total_bytes) == (10, 0)


def test_the_bytes_of_forgotten_partitions_are_counted_together() -> None:
    batches = indexed()
    for local_id in (9, 2, 9, 77):
        forget_partition(batches, local_id)
    assert sorted(batches) == [5, DEAD_PARTITION]
    dead = batches[DEAD_PARTITION]
    assert (len(dead.bases), dead.total_bytes) == (0, 150 + 50)


def test_a_cut_keeps_what_begins_before_it() -> None:
    nine = indexed()[9]
    left = nine.below(4210)
    assert left is not None
    assert (rows(left), left.next_offset, left.total_bytes) == ([(0, 4100, 100, 50)], 3, 100)
    left = nine.below(5000)
    assert left is not None and (left.next_offset, left.total_bytes, len(left.bases)) == (4, 120, 2)
    whole = nine.below(9999)
    assert whole is not None and (rows(whole), whole.next_offset) == (rows(nine), 6)
    assert nine.below(4100) is None
    left.add(4, 1, 9000, 5, 99, 0)  # its own: the original stays as it was
    assert len(nine.bases) == 3


def test_memory_grows_with_batches() -> None:
    index = BatchIndex()
    before = index.memory_bytes
    index.add(0, 1, 4096, 10, 5, 0)
    assert index.memory_bytes - before == 24


def by_epoch() -> BatchIndex:
    """Six batches: two of epoch 3, one of 4, two of 7 and one of 9; the last of epoch 7 was removed."""
    batches: dict[int, BatchIndex] = {}
    flags = (0, 0, 0, 0, ENTRY_REMOVED, 0)
    for base, (epoch, flag) in enumerate(zip((3, 3, 4, 7, 7, 9), flags, strict=True)):
        add_to_index(batches, [entry(1, base, 1, 10, 5, flag, epoch)], 4096 + 10 * base, memoryview(b""))
    return batches[1]


def test_leader_epochs_are_runs_of_rows() -> None:
    index = by_epoch()
    assert index.epoch_runs(0, 6) == [(2, 3), (3, 4), (5, 7), (6, 9)]
    assert index.epoch_runs(1, 4) == [(2, 3), (3, 4), (4, 7)]
    assert index.epoch_runs(2, 3) == [(3, 4)] and index.epoch_runs(5, 6) == [(6, 9)]
    for rows, expected in (
        (6, [(2, 3), (3, 4), (5, 7), (6, 9)]),
        (5, [(2, 3), (3, 4), (5, 7)]),
        (1, [(1, 3)]),
    ):
        left = index.below(4096 + 10 * rows)
        assert left is not None and left.epoch_runs(0, rows) == expected


def test_an_index_counts_what_it_takes_in_memory() -> None:
    tracemalloc.start()
    try:
        kept = [BatchIndex() for _ in range(500)]
        for index in kept:
            for base in range(20):
                index.add(base, 1, base, 100, 1_700_000_000_000, 5)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.75 < taken / sum(index.memory_bytes for index in kept) < 1.25


def in_rows(batches: Batches, place: int) -> tuple[dict[int, BatchIndex], BatchIndex, bytes]:
    """A frame's index as a log makes it, that of partition 1 with a row for each batch, and the payloads."""
    frame = frame_of(batches)
    by_runs: dict[int, BatchIndex] = {}
    payloads = b"".join(frame.payloads)
    assert add_to_index(by_runs, frame.entries, place, memoryview(payloads)) == place + len(payloads)
    one_by_one, at = BatchIndex(), place
    for partition, base, records, length, _, epoch, timestamp, _ in frame.entries:
        if partition == 1:
            one_by_one.add(base, records, at, length, timestamp, epoch)
        at += length
    return by_runs, one_by_one, payloads


def assert_same(index: BatchIndex, expected: BatchIndex) -> None:
    for name in BatchIndex.__slots__:
        if name != "runs":
            assert getattr(index, name) == getattr(expected, name), name


@given(BATCH_LISTS, st.integers(0, 1 << 20))
def test_an_index_of_runs_has_the_rows_of_their_batches(batches: Batches, place: int) -> None:
    by_runs, one_by_one, payloads = in_rows(batches, place)
    index = by_runs.get(1, BatchIndex())
    assert_same(index.by_batch(), one_by_one)
    assert index.by_batch().runs is None
    runs = [run for run in runs_of(frame_of(batches)) if run[0] == 1]
    expected_rows: list[bool] = []
    for run in runs:
        is_run = run[3] > 1 and run[4] <= MAX_MEAN_BYTES * run[3]
        expected_rows += [True] if is_run else [False] * run[3]
    assert [index.is_run(row) for row in range(len(index.bases))] == expected_rows
    runs = [run for run in runs if run[3] > 1 and run[4] <= MAX_MEAN_BYTES * run[3]]
    checksums = index.run_checksums(0, len(index.bases))
    assert list(checksums) == [row for row, is_run in enumerate(expected_rows) if is_run]
    for (row, checksum), (_, base, _, count, size, epoch, newest, _) in zip(
        checksums.items(), runs, strict=True
    ):
        at = index.positions[row] - place
        assert (index.bases[row], index.lengths[row], index.timestamps[row]) == (base, size, newest)
        assert index.epoch_runs(row, row + 1) == [(row + 1, epoch)]
        assert len(index.batches(row).bases) == count
        assert checksum == crc32c(payloads[at : at + size])
    other: dict[int, BatchIndex] = {}
    add_to_index(other, frame_of(batches).entries, place, frame_of(batches).payloads)
    assert file_of(other) == file_of(by_runs)


@given(BATCH_LISTS, BATCH_LISTS, st.data())
def test_lookups_in_runs_give_what_lookups_in_batches_give(
    first: Batches, second: Batches, data: st.DataObject
) -> None:
    index, one_by_one = BatchIndex(), BatchIndex()
    for place, batches in ((4096, first), (1 << 21, second)):
        by_runs, plain, _ = in_rows(batches, place)
        part = by_runs.get(1, BatchIndex())
        begin = data.draw(st.integers(0, len(part.bases)))
        moved(part, index.next_offset)
        moved(plain, index.next_offset)
        index.extend(part, 0, begin)
        index.extend(part, begin, len(part.bases))
        one_by_one.extend(plain, 0, len(plain.bases))
    assert_same(index.by_batch(), one_by_one)
    offset = data.draw(st.integers(0, 70))
    assert index.bytes_from(offset) == sum(one_by_one.lengths[bisect_left(one_by_one.bases, offset) :])
    ends = [4095, 4096, 5000, *one_by_one.positions, 1 << 30]
    end = data.draw(st.sampled_from([each + more for each in ends for more in (0, 1)]))
    below, expected = index.below(end), one_by_one.below(end)
    assert (below is None) == (expected is None)
    if below is not None and expected is not None:
        assert_same(below.by_batch(), expected)


def test_batches_that_do_not_fit_into_a_run_are_rows() -> None:
    """A batch of more records than 16 bits have, one that is a minute older than its neighbour, and large
    ones."""
    for entries in (
        [entry(1, 0, 70_000, 10, 5), entry(1, 70_000, 1, 10, 5)],
        [entry(1, 0, 1, 10, -1), entry(1, 1, 1, 10, 1_700_000_000_000)],
        [entry(1, 0, 1, MAX_MEAN_BYTES, 5), entry(1, 1, 1, MAX_MEAN_BYTES + 1, 5)],
    ):
        batches: dict[int, BatchIndex] = {}
        add_to_index(batches, entries, 4096, memoryview(bytes(sum(each[3] for each in entries))))
        assert batches[1].runs is None
        places = (4096, 4096 + entries[0][3])
        assert rows(batches[1]) == [
            (each[1], at, each[3], each[6]) for each, at in zip(entries, places, strict=True)
        ]


def test_a_run_is_cut_and_counted_by_its_batches() -> None:
    batches: dict[int, BatchIndex] = {}
    entries = [*[entry(1, base, 1, 10, 5) for base in range(4)], entry(2, 9, 1, 7, 5), entry(1, 4, 1, 20, 6)]
    entries.append(entry(3, 0, 1, 30, 5, ENTRY_REMOVED))
    add_to_index(batches, entries, 4096, memoryview(bytes(67)), lambda partition: partition == 3)
    index = batches[1]
    assert rows(index) == [(0, 4096, 40, 5), (4, 4143, 20, 6)] and 3 not in batches
    assert rows(index.batches(0)) == [(base, 4096 + 10 * base, 10, 5) for base in range(4)]
    assert rows(index.batches(1)) == [(4, 4143, 20, 6)]
    assert [index.bytes_from(offset) for offset in range(6)] == [60, 50, 40, 30, 20, 0]
    below = index.below(4117)
    assert below is not None and (rows(below), below.next_offset) == (rows(index.batches(0))[:3], 3)
    below = index.below(4136)
    assert below is not None and (rows(below), below.next_offset, below.is_run(0)) == (
        rows(index)[:1],
        4,
        True,
    )
