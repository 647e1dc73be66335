"""The file beside a segment that says where its batches lie; a broken one is never believed."""

from __future__ import annotations

from array import array

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.log import batch_index, index_file, run_table
from lockstep.storage.log.batch_index import (
    CLEANED_TIMESTAMP,
    DEAD_PARTITION,
    UNKNOWN_EPOCH,
    BatchIndex,
    add_to_index,
    forget_partition,
)
from lockstep.storage.log.index_file import (
    INDEX_HEADER_BYTES,
    IndexHeader,
    SegmentSummary,
    decode_index_head,
    decode_section,
    encode_index,
    index_head_bytes,
    section_of,
)
from lockstep.storage.types import CONTROL_PARTITION
from tests.storage.log.run_frames import BATCH_LISTS
from tests.storage.log.test_batch_index import (
    HEADER,
    Batches,
    assert_same,
    by_epoch,
    entry,
    file_of,
    in_rows,
    indexed,
    rows,
)


def test_a_summary_is_a_row_for_each_partition_by_number() -> None:
    batches = indexed()
    batches[4] = BatchIndex()  # nothing in it
    summary = SegmentSummary.of(batches)
    assert [repr(each) for each in summary.partitions()] == [
        "SegmentPartition(2, 7..12, max_timestamp=70, 50 bytes)",
        f"SegmentPartition(5, 4..9, max_timestamp={CLEANED_TIMESTAMP}, 0 bytes)",
        "SegmentPartition(9, 0..5, max_timestamp=50, 150 bytes)",
    ]
    assert [summary.row(number) for number in (1, 2, 4, 5, 9, 10)] == [-1, 0, -1, 1, 2, -1]
    for wanted in ((9, 4), (4, 5, 9, 11, 12), (), (1,), (1, 3, 4, 6), range(20)):
        expected = [repr(each) for each in summary.partitions() if each.local_id in wanted]
        assert sorted(map(repr, summary.partitions_among(wanted))) == sorted(expected)


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
        at, size = section_of(summary, row)
        assert at == ends
        ends += size
        read = decode_section(data[at : at + size], summary, row)
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
        changed.setattr(index_file, "INDEX_FORMAT", index_file.INDEX_FORMAT + 1)
        data = file_of(indexed())
    assert decode_index_head(data) is None


def test_leader_epochs_come_back_from_the_file_and_are_unknown_in_one_of_format_1() -> None:
    batches = {1: by_epoch(), **indexed()}
    new = file_of(batches)
    for data, known in ((new, True), (in_former_format(new, 2), True), (in_former_format(new, 1), False)):
        head = decode_index_head(data)
        assert head is not None
        summary = head[1]
        for row, number in enumerate(summary.local_ids):
            at, size = section_of(summary, row)
            read = decode_section(data[at : at + size], summary, row)
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
        at, size = section_of(summary, row)
        index = decode_section(data[at : at + size], summary, row)
        assert index is not None
        each = index.by_batch()
        counts.append(len(each.bases))
        columns = [each.bases, each.positions, each.lengths, each.timestamps]
        if index_format == 2:
            columns.append(index_file._epoch_column(each))
        arrays = b"".join(map(index_file._to_big_endian, columns))
        shares += [crc32c(arrays, number).to_bytes(4, "big"), arrays]
    rows = len(summary.local_ids)
    body = bytearray(data[12 : index_head_bytes(data)])
    body[0:2] = index_format.to_bytes(2, "big")
    body[len(body) - 36 * rows : len(body) - 32 * rows] = index_file._to_big_endian(counts)
    return b"".join([data[:8], crc32c(bytes(body)).to_bytes(4, "big"), bytes(body), *shares])


def test_a_partition_s_arrays_are_its_own_and_whole() -> None:
    batches = indexed()
    summary = SegmentSummary.of(batches)
    data = file_of(batches)
    at, size = section_of(summary, 2)
    good = data[at : at + size]
    assert decode_section(good, summary, 2) is not None
    assert decode_section(good[:-1], summary, 2) is None
    assert decode_section(good + b"\0", summary, 2) is None
    for place in range(size):
        bad = bytearray(good)
        bad[place] ^= 1
        assert decode_section(bytes(bad), summary, 2) is None, place
    summary.local_ids[2] = 8  # the checksum is seeded with the partition's number
    assert decode_section(good, summary, 2) is None


def test_the_file_is_big_endian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are swapped on the machines that need it; on the others they go as they are."""
    batches = {9: indexed()[9]}
    data = file_of(batches)
    at, _ = section_of(SegmentSummary.of(batches), 0)
    at += 4  # no runs
    bases = data[at + 4 : at + 4 + 24]
    assert [int.from_bytes(bases[place : place + 8], "big") for place in (0, 8, 16)] == [0, 3, 4]
    monkeypatch.setattr(index_file, "_SWAP", not index_file._SWAP)
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
    at, size = section_of(summary, 1)
    dead = decode_section(data[at : at + size], summary, 1)
    assert dead is not None and (rows(dead), dead.total_bytes) == ([], 200)
    frames = indexed()  # what a look through the frames finds has the partitions, not the row
    decoded = decode_index_head(b"".join(encode_index(HEADER, summary, frames)))
    assert decoded is not None and [list(each) for each in decoded[1].arrays()] == [
        list(each) for each in summary.arrays()
    ]


@given(BATCH_LISTS, st.integers(0, 1 << 20))
def test_runs_come_back_from_the_file_and_change_with_any_of_its_bytes(batches: Batches, place: int) -> None:
    by_runs, _, _ = in_rows(batches, place)
    data = file_of(by_runs)
    head = decode_index_head(data)
    assert head is not None
    for row, number in enumerate(head[1].local_ids):
        at, size = section_of(head[1], row)
        read = decode_section(data[at : at + size], head[1], row)
        assert read is not None
        assert_same(read, by_runs[number])
        assert_same(read.by_batch(), by_runs[number].by_batch())
        count = len(read.bases)
        assert read.run_checksums(0, count) == by_runs[number].run_checksums(0, count)
        for place in range(0, size, 7):
            bad = bytearray(data[at : at + size])
            bad[place] ^= 1
            assert decode_section(bytes(bad), head[1], row) is None
    for former in (1, 2):
        head = decode_index_head(in_former_format(data, former))
        assert head is not None and head[1].index_format == former
        assert list(head[1].local_ids) == sorted(by_runs)


def test_arrays_that_end_within_a_row_are_not_believed() -> None:
    batches = {9: indexed()[9]}
    summary, data = SegmentSummary.of(batches), file_of(batches)
    at, size = section_of(summary, 0)
    share = data[at + 4 : at + size] + b"\0"
    summary.sizes[0] += 1
    assert decode_section(crc32c(share, 9).to_bytes(4, "big") + share, summary, 0) is None


def test_a_run_takes_half_the_memory_and_file_of_its_batches_from_four_on() -> None:
    batches: dict[int, BatchIndex] = {}
    entries = [entry(1, base, 1, 4_096, 5) for base in range(4)]
    add_to_index(batches, entries, 4096, memoryview(bytes(4 * 4_096)))
    run, table = batches[1], batches[1].runs
    assert table is not None
    assert run.memory_bytes - batch_index.INDEX_COST_BYTES - run_table.TABLE_COST_BYTES == 24 + 12 + 4 * 6
    assert list(SegmentSummary.of(batches).sizes) == [8 + 28 + 12 + 4 * 6]
