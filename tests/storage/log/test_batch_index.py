"""Where a segment's batches lie, in memory and in the file beside it; a broken file is never believed."""

from __future__ import annotations

import tracemalloc
from array import array
from bisect import bisect_left

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.log import batch_index, run_table
from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_index import (
    DEAD_PARTITION,
    INDEX_HEADER_BYTES,
    MAX_MEAN_BYTES,
    NO_TIMESTAMP,
    UNKNOWN_EPOCH,
    BatchIndex,
    IndexHeader,
    SegmentSummary,
    add_to_index,
    batches_at,
    decode_batches,
    decode_index_head,
    encode_index,
    forget_partition,
    index_head_bytes,
)
from lockstep.storage.log.batch_runs import runs_of
from lockstep.storage.types import CONTROL_PARTITION
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
    assert rows(removed) == [(4, 5000, 0, NO_TIMESTAMP)]
    assert (removed.next_offset, removed.total_bytes) == (10, 0)


def test_a_cut_keeps_what_begins_before_it() -> None:
    nine = indexed()[9]
    left = nine.cut(4210)
    assert left is not None
    assert (rows(left), left.next_offset, left.total_bytes) == ([(0, 4100, 100, 50)], 3, 100)
    left = nine.cut(5000)
    assert left is not None and (left.next_offset, left.total_bytes, len(left.bases)) == (4, 120, 2)
    whole = nine.cut(9999)
    assert whole is not None and (rows(whole), whole.next_offset) == (rows(nine), 6)
    assert nine.cut(4100) is None
    left.add(4, 1, 9000, 5, 99, 0)  # its own: what was cut from stays as it was
    assert len(nine.bases) == 3


def test_memory_grows_with_batches() -> None:
    index = BatchIndex()
    before = index.memory_bytes
    index.add(0, 1, 4096, 10, 5, 0)
    assert index.memory_bytes - before == 24


def test_a_summary_is_a_row_for_each_partition_by_number() -> None:
    batches = indexed()
    batches[4] = BatchIndex()  # nothing in it
    summary = SegmentSummary.of(batches)
    assert [repr(each) for each in summary.partitions()] == [
        "SegmentPartition(2, 7..12, max_timestamp=70, 50 bytes)",
        f"SegmentPartition(5, 4..9, max_timestamp={NO_TIMESTAMP}, 0 bytes)",
        "SegmentPartition(9, 0..5, max_timestamp=50, 150 bytes)",
    ]
    assert [summary.row(number) for number in (1, 2, 4, 5, 9, 10)] == [-1, 0, -1, 1, 2, -1]
    for wanted in ((9, 4), (4, 5, 9, 11, 12), (), (1,), (1, 3, 4, 6), range(20)):
        expected = [repr(each) for each in summary.partitions() if each.partition in wanted]
        assert sorted(map(repr, summary.shares(wanted))) == sorted(expected)


def test_dead_is_what_lies_below_its_partition_s_log_start() -> None:
    summary = SegmentSummary.of(indexed())
    starts = {2: 12, 5: 0, 9: 5}
    assert summary.dead_bytes(starts.__getitem__) == 0  # each has its last record left
    assert summary.dead_bytes({**starts, 2: 13}.__getitem__) == 50
    assert summary.dead_bytes({**starts, 2: 13, 9: 6}.__getitem__) == 200
    control = {CONTROL_PARTITION: BatchIndex(), 9: indexed()[9]}
    control[CONTROL_PARTITION].add(0, 1, 4096, 10, 5, 0)
    assert SegmentSummary.of(control).dead_bytes(lambda number: 99) == 160
    assert list(summary.sizes) == [8 + 28 * batches for batches in (2, 1, 3)]


def test_a_row_that_keeps_a_segment_is_looked_for_from_the_last_one_on_and_round() -> None:
    summary = SegmentSummary.of(indexed())  # of the partitions 2, 5 and 9; all of 5 was removed
    starts = {2: 12, 5: 0, 9: 5}
    assert [summary.live_row(starts.__getitem__, first) for first in range(4)] == [0, 2, 2, 0]
    assert [summary.live_row({**starts, 2: 13}.__getitem__, first) for first in range(4)] == [2, 2, 2, 2]
    assert [summary.live_row({**starts, 9: 6}.__getitem__, first) for first in range(4)] == [0, 0, 0, 0]
    assert [summary.live_row({2: 13, 5: 0, 9: 6}.__getitem__, first) for first in range(4)] == [-1] * 4
    assert SegmentSummary().live_row(starts.__getitem__, 0) == -1


def test_the_file_brings_both_back() -> None:
    batches = indexed()
    data = file_of(batches)
    head = decode_index_head(data)
    assert head is not None
    header, summary = head
    assert [getattr(header, name) for name in IndexHeader.__slots__] == [
        getattr(HEADER, name) for name in IndexHeader.__slots__
    ]
    assert summary.arrays() == SegmentSummary.of(batches).arrays()
    ends = index_head_bytes(data)
    for row, number in enumerate(summary.local_ids):
        at, size = batches_at(summary, row)
        assert at == ends
        ends += size
        read = decode_batches(data[at : at + size], summary, row)
        assert read is not None and rows(read) == rows(batches[number])
        assert (read.next_offset, read.total_bytes) == (
            batches[number].next_offset,
            batches[number].total_bytes,
        )
    assert ends == len(data)


def test_a_segment_without_batches_has_a_file_of_a_header() -> None:
    data = file_of({})
    head = decode_index_head(data)
    assert head is not None and list(head[1].partitions()) == []
    assert len(data) == INDEX_HEADER_BYTES == index_head_bytes(data)


def test_a_changed_byte_in_header_or_summary_is_no_index() -> None:
    data = file_of(indexed())
    for at in range(index_head_bytes(data)):
        bad = bytearray(data)
        bad[at] ^= 0x40
        assert decode_index_head(bytes(bad)) is None, at


def test_a_file_cut_short_or_of_other_bytes_is_no_index() -> None:
    data = file_of(indexed())
    for size in range(index_head_bytes(data)):
        assert decode_index_head(data[:size]) is None
    assert index_head_bytes(data[: INDEX_HEADER_BYTES - 1]) == 0
    assert index_head_bytes(b"x" * INDEX_HEADER_BYTES) == 0


def test_another_format_s_file_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(batch_index, "INDEX_FORMAT", batch_index.INDEX_FORMAT + 1)
        data = file_of(indexed())
    assert decode_index_head(data) is None


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
        left = index.cut(4096 + 10 * rows)
        assert left is not None and left.epoch_runs(0, rows) == expected


def test_leader_epochs_come_back_from_the_file_and_are_unknown_in_one_of_format_1() -> None:
    batches = {1: by_epoch(), **indexed()}
    new = file_of(batches)
    for data, known in ((new, True), (in_former_format(new, 2), True), (in_former_format(new, 1), False)):
        head = decode_index_head(data)
        assert head is not None
        summary = head[1]
        for row, number in enumerate(summary.local_ids):
            at, size = batches_at(summary, row)
            read = decode_batches(data[at : at + size], summary, row)
            assert read is not None and rows(read) == rows(batches[number])
            count = len(read.bases)
            assert read.epoch_runs(0, count) == (
                batches[number].epoch_runs(0, count) if known else [(count, UNKNOWN_EPOCH)]
            )


def in_former_format(data: bytes, index_format: int) -> bytes:
    """An index file as versions wrote it that had a row for each batch, and in format 1 no leader epochs."""
    head = decode_index_head(data)
    assert head is not None
    summary = head[1]
    shares, counts = [], array("I")
    for row, number in enumerate(summary.local_ids):
        at, size = batches_at(summary, row)
        index = decode_batches(data[at : at + size], summary, row)
        assert index is not None
        each = index.by_batch()
        counts.append(len(each.bases))
        columns = [each.bases, each.positions, each.lengths, each.timestamps]
        if index_format == 2:
            columns.append(batch_index._epochs(each))
        arrays = b"".join(map(batch_index._big, columns))
        shares += [crc32c(arrays, number).to_bytes(4, "big"), arrays]
    rows = len(summary.local_ids)
    body = bytearray(data[12 : index_head_bytes(data)])
    body[0:2] = index_format.to_bytes(2, "big")
    body[len(body) - 36 * rows : len(body) - 32 * rows] = batch_index._big(counts)
    return b"".join([data[:8], crc32c(bytes(body)).to_bytes(4, "big"), bytes(body), *shares])


def test_a_partition_s_arrays_are_its_own_and_whole() -> None:
    batches = indexed()
    summary = SegmentSummary.of(batches)
    data = file_of(batches)
    at, size = batches_at(summary, 2)
    good = data[at : at + size]
    assert decode_batches(good, summary, 2) is not None
    assert decode_batches(good[:-1], summary, 2) is None
    assert decode_batches(good + b"\0", summary, 2) is None
    for place in range(size):
        bad = bytearray(good)
        bad[place] ^= 1
        assert decode_batches(bytes(bad), summary, 2) is None, place
    summary.local_ids[2] = 8  # the checksum is seeded with the partition's number
    assert decode_batches(good, summary, 2) is None


def test_the_file_is_big_endian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are swapped on the machines that need it; on the others they go as they are."""
    batches = {9: indexed()[9]}
    data = file_of(batches)
    at, _ = batches_at(SegmentSummary.of(batches), 0)
    at += 4  # no runs
    bases = data[at + 4 : at + 4 + 24]
    assert [int.from_bytes(bases[place : place + 8], "big") for place in (0, 8, 16)] == [0, 3, 4]
    monkeypatch.setattr(batch_index, "_SWAP", not batch_index._SWAP)
    assert file_of(batches)[at + 4 : at + 4 + 8 * 3] == b"".join(
        bases[place : place + 8][::-1] for place in (0, 8, 16)
    )
    head = decode_index_head(file_of(batches))
    assert head is not None and list(head[1].local_ids) == [9]


def test_a_forgotten_partition_leaves_its_bytes_in_one_row_that_any_file_can_have() -> None:
    batches = indexed()
    for number in (9, 2, 77):
        forget_partition(batches, number)
    summary = SegmentSummary.of(batches)
    assert list(summary.local_ids) == [5, DEAD_PARTITION] and summary.totals[-1] == 150 + 50
    assert summary.dead_bytes(lambda number: 1 << 62) == 200
    assert summary.live_row(lambda number: 0, 0) == -1
    data = file_of(batches)
    at, size = batches_at(summary, 1)
    dead = decode_batches(data[at : at + size], summary, 1)
    assert dead is not None and (rows(dead), dead.total_bytes) == ([], 200)
    frames = indexed()  # what a look through the frames finds has the partitions, not the row
    decoded = decode_index_head(b"".join(encode_index(HEADER, summary, frames)))
    assert decoded is not None and [list(each) for each in decoded[1].arrays()] == [
        list(each) for each in summary.arrays()
    ]


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
def test_what_is_asked_of_runs_is_answered_as_of_batches(
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
    cut, expected = index.cut(end), one_by_one.cut(end)
    assert (cut is None) == (expected is None)
    if cut is not None and expected is not None:
        assert_same(cut.by_batch(), expected)


@given(BATCH_LISTS, st.integers(0, 1 << 20))
def test_runs_come_back_from_the_file_and_change_with_any_of_its_bytes(batches: Batches, place: int) -> None:
    by_runs, _, _ = in_rows(batches, place)
    data = file_of(by_runs)
    head = decode_index_head(data)
    assert head is not None
    for row, number in enumerate(head[1].local_ids):
        at, size = batches_at(head[1], row)
        read = decode_batches(data[at : at + size], head[1], row)
        assert read is not None
        assert_same(read, by_runs[number])
        assert_same(read.by_batch(), by_runs[number].by_batch())
        count = len(read.bases)
        assert read.run_checksums(0, count) == by_runs[number].run_checksums(0, count)
        for place in range(0, size, 7):
            bad = bytearray(data[at : at + size])
            bad[place] ^= 1
            assert decode_batches(bytes(bad), head[1], row) is None
    for former in (1, 2):
        head = decode_index_head(in_former_format(data, former))
        assert head is not None and head[1].index_format == former
        assert list(head[1].local_ids) == sorted(by_runs)


def test_arrays_that_end_within_a_row_are_not_believed() -> None:
    batches = {9: indexed()[9]}
    summary, data = SegmentSummary.of(batches), file_of(batches)
    at, size = batches_at(summary, 0)
    share = data[at + 4 : at + size] + b"\0"
    summary.sizes[0] += 1
    assert decode_batches(crc32c(share, 9).to_bytes(4, "big") + share, summary, 0) is None


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
    cut = index.cut(4117)
    assert cut is not None and (rows(cut), cut.next_offset) == (rows(index.batches(0))[:3], 3)
    cut = index.cut(4136)
    assert cut is not None and (rows(cut), cut.next_offset, cut.is_run(0)) == (rows(index)[:1], 4, True)


def test_a_run_takes_half_the_memory_and_file_of_its_batches_from_four_on() -> None:
    batches: dict[int, BatchIndex] = {}
    entries = [entry(1, base, 1, 4_096, 5) for base in range(4)]
    add_to_index(batches, entries, 4096, memoryview(bytes(4 * 4_096)))
    run, table = batches[1], batches[1].runs
    assert table is not None
    assert run.memory_bytes - batch_index.INDEX_COST_BYTES - run_table.TABLE_COST_BYTES == 24 + 12 + 4 * 6
    assert list(SegmentSummary.of(batches).sizes) == [8 + 28 + 12 + 4 * 6]
