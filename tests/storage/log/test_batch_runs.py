"""Runs of batches, and batches one by one: the same rows, the same reads, whatever the frame."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.batch_runs import MAX_RUN_BYTES, group_batches, runs_of
from lockstep.storage.log.format import (
    ENTRY_RAW,
    decode_frames,
    encode_frame_head,
    frame_buffers,
    frame_bytes,
)
from lockstep.storage.log.tail_cache import SharedBuffer, TailCache
from lockstep.storage.types import Buffer, EntryFields, Frame, FrameKind
from tests.storage.log.frames import batch, entry, whole

BATCHES = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 2]),  # partition
        st.integers(1, 4),  # records
        st.sampled_from([0, 1, 30, 30, 30, 400, MAX_RUN_BYTES // 3, MAX_RUN_BYTES]),  # bytes
        st.sampled_from([0, 0, 0, 0, 2]),  # flags
        st.sampled_from([0, 0, 0, 0, 1]),  # how much higher the leader epoch is
    ),
    min_size=1,
    max_size=14,
)


def made(batches: list[tuple[int, int, int, int, int]]) -> Frame:
    """A frame as a leader has it."""
    entries: list[EntryFields] = []
    payloads: list[Buffer] = []
    nexts = {1: 5, 2: 70}
    epoch = 3
    for number, (partition, records, size, flags, more) in enumerate(batches):
        epoch += more
        payload = batch(nexts[partition], bytes([number % 256]) * size, epoch)
        each = entry(partition, payload, records, (number * 7) % 5)
        each.flags = flags
        entries.append(each.fields)
        payloads.append(payload)
        nexts[partition] += records
    frame = Frame(FrameKind.DATA, 1, 1, 1, 9, [], payloads, sum(fields[2] for fields in entries))
    frame.pack(entries)
    return frame


@given(BATCHES)
def test_runs_are_the_batches_of_a_directory_in_their_order(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    frame = made(batches)
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
    frame = made([(1, 1, 1000, 0, 0)] * 200)
    assert [run[3] for run in runs_of(frame)] == [MAX_RUN_BYTES // 1021] * 3 + [
        200 - 3 * (MAX_RUN_BYTES // 1021)
    ]


@given(BATCHES)
def test_a_frame_is_the_same_from_a_leader_and_on_a_follower(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    frame = made(batches)
    expected = (frame.entries, [bytes(each) for each in frame.payloads], frame_bytes(frame), runs_of(frame))
    frame.head, _ = encode_frame_head(frame, 77)
    (received,) = decode_frames(b"".join(frame_buffers(frame)), 77)
    for each in (frame, received):
        for _ in range(2):  # with the entries in memory, and without
            assert each.batch_count == len(batches)
            assert whole(each.buffers) == whole(each.payloads)
            found = (each.entries, [bytes(p) for p in each.payloads], frame_bytes(each), runs_of(each))
            assert found == expected
            each.forget_entries()
    assert [each.fields for each in received.directory] == expected[0]
    assert received.batch_count == len(batches) and received.entries == expected[0]
    assert whole(frame_buffers(received)) == whole(frame_buffers(frame))
    assert received.body is not None and len(received.buffers) == 1


def test_a_raw_entry_is_alone() -> None:
    entries = [(1, 0, 1, 40, 0, 0, 0, 0), (1, 1, 1, 40, 0, 0, 0, ENTRY_RAW), (1, 2, 1, 40, 0, 0, 0, 0)]
    assert [run[3] for run in group_batches(entries)] == [1, 1, 1]


@given(BATCHES, st.integers(0, 1 << 20))
def test_an_index_has_the_same_rows_of_a_run_as_of_its_batches(
    batches: list[tuple[int, int, int, int, int]], place: int
) -> None:
    frame = made(batches)
    one_by_one, by_runs = BatchIndex(), BatchIndex()
    row, at = 0, place
    for partition, _, next_offset, count, size, leader_epoch, _, _ in runs_of(frame):
        rows = frame.entries[row : row + count]
        row += count
        if partition == 1:
            by_runs.add_run(rows, next_offset, at, size, leader_epoch)
            begin = at
            for _, base, records, length, _, epoch, timestamp, _ in rows:
                one_by_one.add(base, records, begin, length, timestamp, epoch)
                begin += length
        at += size
    for name in BatchIndex.__slots__:
        assert getattr(by_runs, name) == getattr(one_by_one, name), name


def cached(frames: list[Frame], kind: str, limit: int) -> TailCache:
    """What frames leave in the cache: batches one by one, runs of batches, or rows in one buffer."""
    cache = TailCache(limit)
    for frame in frames:
        row, begin = 0, 3
        shared = SharedBuffer(memoryview(b"..." + whole(frame.payloads)))
        for partition, base, next_offset, count, size, *_ in runs_of(frame):
            payloads = frame.payloads[row : row + count]
            row += count
            if kind == "buffers":
                cache.add_shared(partition, base, next_offset, shared, begin, size)
            elif kind == "batches" or count == 1:
                for payload in payloads:
                    cache.add(partition, int.from_bytes(payload[:8], "big"), payload, len(payload))
            else:
                cache.add_run(partition, base, next_offset, payloads, size)
            begin += size
    return cache


@settings(max_examples=60, deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=4), st.integers(0, 1 << 30))
def test_reads_of_the_tail_are_the_same_of_runs_as_of_batches(
    all_batches: list[list[tuple[int, int, int, int, int]]], seed: int
) -> None:
    frames, nexts = [], {1: 5, 2: 70}
    for batches in all_batches:
        frame = made(batches)
        moved = []  # on to where the partition is
        for fields, payload in zip(frame.entries, frame.payloads, strict=True):
            partition, records = fields[0], fields[2]
            base = nexts[partition]
            nexts[partition] += records
            moved.append((*fields[:1], base, *fields[2:]))
            frame.payloads[len(moved) - 1] = base.to_bytes(8, "big") + bytes(payload[8:])
        frame.pack(moved)
        frame.runs = None
        frames.append(frame)
    expected = cached(frames, "batches", 1 << 30)
    rng = random.Random(seed)
    for kind in ("runs", "buffers"):
        cache = cached(frames, kind, 1 << 30)
        for partition, first in ((1, 5), (2, 70)):
            for offset in range(first - 1, nexts[partition] + 1):
                for _ in range(6):
                    arguments = (
                        partition,
                        offset,
                        rng.choice([0, 1, 60, rng.randrange(600), rng.randrange(3 * MAX_RUN_BYTES), 1 << 30]),
                        rng.randrange(offset + 1, nexts[partition] + 2),
                        rng.random() < 0.5,
                    )
                    one, other = expected.read(*arguments), cache.read(*arguments)
                    assert (one is None) == (other is None)
                    if one is not None and other is not None:
                        assert whole(one[0]) == whole(other[0]) and one[1] == other[1], (kind, arguments)


def test_the_oldest_runs_go_first_and_are_counted_off() -> None:
    frame = made([(1, 1, 400, 0, 0)] * 1000)
    for kind in ("runs", "buffers"):
        cache = cached([frame], kind, 200_000)
        kept = [offset for offset in range(5, 1005) if cache.read(1, offset, 1, 1 << 30, True) is not None]
        assert kept == list(range(kept[0], 1005)) and 300 < len(kept) < 500
        assert cache._used_bytes <= 200_000
        run = cache._partitions[1].bases[cache._partitions[1].start + 1]
        cache.forget_below(1, run + 1)  # within the second run, which goes as well
        assert cache.read(1, run + 1, 1, 1 << 30, True) is None
        cache.forget_below(1, 1 << 40)
        assert cache._used_bytes == 0 and not cache._partitions
