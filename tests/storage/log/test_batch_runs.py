"""Neighbouring batches of one partition in a frame are a run; each batch of it is there with its entry."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from lockstep.storage.log.batch_runs import MAX_RUN_BYTES, batches_of, group_batches, runs_of
from lockstep.storage.log.format import ENTRY_RAW, decode_frames, encode_frame_head, frame_buffers
from lockstep.storage.types import EntryFields
from tests.storage.log.run_frames import BATCH_LISTS, frame_of


@given(BATCH_LISTS)
def test_runs_are_the_batches_of_a_directory_in_their_order(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    frame = frame_of(batches)
    row = 0
    runs = runs_of(frame)
    for partition, base, next_offset, count, size, leader_epoch, newest, flags in runs:
        rows = frame.entries[row : row + count]
        row += count
        assert {(each[0], each[5], each[7]) for each in rows} == {(partition, leader_epoch, flags)}
        assert (rows[0][1], rows[-1][1] + rows[-1][2]) == (base, next_offset)
        assert all(before[1] + before[2] == after[1] for before, after in pairwise(rows))
        assert size == sum(each[3] for each in rows) and newest == max(each[6] for each in rows)
        assert count == 1 or (flags == 0 and size <= MAX_RUN_BYTES)
    assert row == len(frame.entries)
    for one, other in pairwise(runs):  # no run could be longer
        joins = one[0] == other[0] and one[2] == other[1] and one[5] == other[5] and not (one[7] or other[7])
        assert not joins or one[4] + MAX_RUN_BYTES // 3 > MAX_RUN_BYTES or other[4] + one[4] > MAX_RUN_BYTES


def test_a_run_of_small_batches_ends_at_its_limit() -> None:
    frame = frame_of([(1, 1, 1000, 0, 0)] * 200)
    assert [run[3] for run in runs_of(frame)] == [MAX_RUN_BYTES // 1021] * 3 + [
        200 - 3 * (MAX_RUN_BYTES // 1021)
    ]


@given(BATCH_LISTS)
def test_a_frame_of_one_batch_has_the_run_that_grouping_gives(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    for each in batches:
        frame = frame_of([each])
        assert runs_of(frame) == group_batches(frame.entries)
        assert runs_of(frame) is runs_of(frame)


def test_a_raw_entry_is_alone() -> None:
    entries = [(1, 0, 1, 40, 0, 0, 0, 0), (1, 1, 1, 40, 0, 0, 0, ENTRY_RAW), (1, 2, 1, 40, 0, 0, 0, 0)]
    assert [run[3] for run in group_batches(entries)] == [1, 1, 1]
    assert group_batches([]) == []


@given(BATCH_LISTS)
def test_batches_of_a_frame_come_with_their_entries_and_leave_nothing_in_it(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    frame = frame_of(batches)
    expected = list(zip(frame.entries, [bytes(each) for each in frame.payloads], strict=True))
    frame.head, _ = encode_frame_head(frame, 77)
    (received,) = decode_frames(b"".join(frame_buffers(frame)), 77)
    for each in (frame, received):
        each.forget_entries()
        row = begin = 0
        found: list[tuple[EntryFields, bytes]] = []
        for _, _, _, count, size, *_ in runs_of(each):
            some = batches_of(each, each.entries, row, count, begin)
            found += [(entry.fields, bytes(payload)) for entry, payload in some]
            row += count
            begin += size
        assert found == expected
        assert (each._directory, each._entries) == (None, None)
    assert received._payloads is None
