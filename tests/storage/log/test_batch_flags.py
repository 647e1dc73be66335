"""Marks: batches that are gone or shorter, verified to the last bit; as format 2 has them where it can."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from lockstep.storage.log.batch_flags import (
    ENTRY_REMOVED,
    ENTRY_SHORTENED,
    apply_marks,
    encode_marks,
    is_changed,
    max_marks_bytes,
    min_marks_bytes,
)
from lockstep.storage.log.format import chain_of, decode_frames, encode_frame_head, frame_buffers, group_seed
from lockstep.storage.log.frame_rewrite import RewrittenBatch, rewrite_frame
from lockstep.storage.types import Buffer, DirectoryEntry, Frame
from tests.storage.log.frames import FrameMaker, half, same
from tests.support.cases import each_case

SEED = group_seed(3)


def removed(frame: Frame, *rows: int) -> Frame:
    """The frame with these batches cleaned away; its head stays what it was."""
    for row in rows:
        frame.directory[row].flags |= ENTRY_REMOVED
        frame.payloads[row] = b""
    return frame


def three(*rows: int, halved: tuple[int, ...] = ()) -> list[Frame]:
    """Frames of 1, 9 and 0 batches; of the second one `rows` are cleaned away, others `halved`."""
    make, frames, chain = FrameMaker(), [], SEED
    for batches in ([(1, 2, b"one")], [(n, 1, b"batch %d" % n) for n in range(9)], []):
        frame = make.data(*batches) if batches else make.no_op()
        frame.head, chain = encode_frame_head(frame, chain)
        frames.append(frame)
    removed(frames[1], *rows)

    def judge(e: DirectoryEntry, payload: Buffer) -> RewrittenBatch | bool:
        return half(e, payload) if e.partition in halved else True

    frames[1] = rewrite_frame(frames[1], judge)
    return frames


def shipped(frames: list[Frame]) -> bytes:
    return b"".join(b"".join(frame_buffers(frame, marked=True)) for frame in frames)


@each_case("rows", [(), (0,), (7, 8), tuple(range(9))])
def test_frames_of_a_checkpoint_come_back_without_what_was_cleaned_away(rows: tuple[int, ...]) -> None:
    frames = three(*rows)
    got = decode_frames(shipped(frames), SEED, marked=True)
    assert len(got) == 3 and all(map(same, got, frames))
    assert [frame.head for frame in got] == [frame.head for frame in frames]
    assert [is_changed(frame) for frame in got] == [False, bool(rows), False]
    assert [len(frame_buffers(frame, marked=True)[1]) for frame in frames] == [
        min_marks_bytes(len(frame.directory)) for frame in frames
    ]


HALVED = [((), (3,)), ((0,), (7, 8)), ((1, 2, 3), (0, 4, 5, 6, 7, 8))]


@each_case(("rows", "halved"), HALVED)
def test_shortened_batches_come_back_as_what_they_are(rows: tuple[int, ...], halved: tuple[int, ...]) -> None:
    frames = three(*rows, halved=halved)
    got = decode_frames(shipped(frames), SEED, marked=True)
    assert len(got) == 3 and all(map(same, got, frames))
    assert [frame.head for frame in got] == [frame.head for frame in frames]
    assert [is_changed(frame) for frame in got] == [False, True, False]
    shortened = [row for row, e in enumerate(got[1].directory) if e.flags & ENTRY_SHORTENED]
    assert shortened == list(halved) and not any(
        got[1].directory[row].flags & ENTRY_REMOVED for row in halved
    )
    for row in halved:
        assert got[1].directory[row].length == len(got[1].payloads[row]) < three()[1].directory[row].length
        assert got[1].directory[row].record_count == 1
    sizes = [len(frame_buffers(frame, marked=True)[1]) for frame in frames]
    assert sizes[1] == min_marks_bytes(9) + 16 * (len(rows) + len(halved)) + 4 <= max_marks_bytes(9)
    assert (sizes[0], sizes[2]) == (min_marks_bytes(1), min_marks_bytes(0))


@each_case("halved", [(), (2,)])
def test_no_changed_mark_is_taken(halved: tuple[int, ...]) -> None:
    """A flipped bit would bring a batch back, or take one away."""
    frames = three(4, halved=halved)
    data = shipped(frames)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        with pytest.raises(ValueError, match="byte"):
            decode_frames(bad, SEED, marked=True)
    ends = {len(shipped(frames[:count])) for count in range(4)}
    for size in set(range(len(data))) - ends:
        with pytest.raises(ValueError, match=r"cut short|impossible lengths"):
            decode_frames(data[:size], SEED, marked=True)


def test_marks_are_refused_where_they_do_not_verify() -> None:
    frame = removed(three()[1], 2)
    entries: list[tuple[int, ...]] = [(0, 0, 1, 10, 0, 0, 0, 0)] * 9
    marks = encode_marks(frame)
    kept = list(entries)
    assert apply_marks(memoryview(b"12" + marks), 2, kept, chain_of(frame.head or b"")) == (6, 80)
    assert [bool(fields[7]) for fields in kept] == [row == 2 for row in range(9)]
    with pytest.raises(ValueError, match="do not verify"):
        apply_marks(memoryview(marks), 0, list(entries), 1)
    with pytest.raises(ValueError, match="cut short"):
        apply_marks(memoryview(marks[:-1]), 0, list(entries), 1)
    frame = three(2, halved=(5,))[1]
    chain = chain_of(frame.head or b"")
    marks = encode_marks(frame)
    assert apply_marks(memoryview(marks), 0, list(entries), chain)[0] == len(marks)
    with pytest.raises(ValueError, match="cut short"):
        apply_marks(memoryview(marks[:-1]), 0, list(entries), chain)
    with pytest.raises(ValueError, match="do not verify"):
        apply_marks(memoryview(marks[:-1] + bytes([marks[-1] ^ 1])), 0, list(entries), chain)


def test_without_a_shortened_batch_marks_are_those_of_format_2() -> None:
    frame = three(2)[1]
    bits = bytes([1 << 2, 0])
    assert encode_marks(frame) == bits + crc32c(bits, chain_of(frame.head or b"")).to_bytes(4, "big")


def test_what_is_shortened_and_then_gone_is_as_if_it_had_gone_at_once() -> None:
    gone = rewrite_frame(three(halved=(1,))[1], lambda e, payload: e.partition != 1)
    assert same(gone, three(1)[1])
    with pytest.raises(ValueError, match="no batch for partition 4"):
        rewrite_frame(
            three()[1],
            lambda e, p: half(DirectoryEntry(4, 9, 1, 1, 1, 0, 0), p) if e.partition == 4 else True,
        )
