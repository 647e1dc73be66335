"""Frames and their entries: the same however they are given, and what two of a kind are equal in."""

from __future__ import annotations

from hypothesis import given

from lockstep.storage.log.batch_runs import runs_of
from lockstep.storage.log.format import decode_frames, encode_frame_head, frame_buffers, frame_bytes
from lockstep.storage.types import (
    Checkpoint,
    DamagedBatch,
    DirectoryEntry,
    Frame,
    FrameKind,
    HardState,
    ReadResult,
)
from tests.storage.log.frames import whole
from tests.storage.log.run_frames import BATCH_LISTS, frame_of


@given(BATCH_LISTS)
def test_a_frame_is_the_same_from_a_leader_and_on_a_follower(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    frame = frame_of(batches)
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


def test_a_frame_of_objects_has_the_numbers_of_its_entries() -> None:
    entries = [DirectoryEntry(1, 5, 2, 3, 9, 4, 70), DirectoryEntry(2, 0, 1, 2, 8, 4, 71, 2)]
    frame = Frame(FrameKind.DATA, 1, 1, 1, 9, entries, [b"one", b"to"], 3)
    frame.forget_entries()
    assert frame.directory is entries and frame.batch_count == 2
    assert frame.entries == [(1, 5, 2, 3, 9, 4, 70, 0), (2, 0, 1, 2, 8, 4, 71, 2)]
    assert list(frame.batches()) == list(zip(frame.entries, [b"one", b"to"], strict=True))
    assert whole(frame.buffers) == b"oneto"


def test_other_payloads_take_the_place_of_a_part_of_a_message() -> None:
    frame = Frame(FrameKind.DATA, 1, 1, 1, 9, [], [], 2)
    frame.pack([(1, 0, 1, 3, 0, 0, 0, 0), (1, 1, 1, 2, 0, 0, 0, 0)], memoryview(b"..onetwo"), 2, 7)
    assert [bytes(payload) for _, payload in frame.batches()] == [b"one", b"tw"]
    assert whole(frame.buffers) == b"onetw"
    frame.payloads = [b"six", b"te"]
    assert whole(frame.buffers) == b"sixte"
    assert [bytes(payload) for _, payload in frame.batches()] == [b"six", b"te"]


def test_a_frame_without_batches_has_no_entries() -> None:
    frame = Frame(FrameKind.NO_OP, 1, 1, 1, 9, [], [], 0)
    frame.head, _ = encode_frame_head(frame, 7)
    (received,) = decode_frames(frame.head, 7)
    received.forget_entries()
    assert (received.entries, received.batch_count, list(received.batches())) == ([], 0, [])


def test_what_is_equal() -> None:
    assert DirectoryEntry(1, 2, 3, 4, 5, 6, 7) == DirectoryEntry(1, 2, 3, 4, 5, 6, 7, 0) != 7
    assert DirectoryEntry(1, 2, 3, 4, 5, 6, 7) != DirectoryEntry(1, 2, 3, 4, 5, 6, 7, 1)
    assert repr(DirectoryEntry(1, 2, 3, 4, 5, 6, 7)) == "DirectoryEntry(1, 2, 3, 4, 5, 6, 7, 0)"
    assert HardState(3, 1) == HardState(3, 1, 0) != HardState(3, 2) and HardState() != 0
    assert repr(HardState(3, 1)) == "HardState(term=3, voted_for=1, incarnation=0)"


def test_a_checkpoint_without_its_sections_is_its_position() -> None:
    whole_one = Checkpoint(9, 2, 70, 123, 1000, {"a": b"x"})
    position = whole_one.without_sections()
    assert (position.index, position.term, position.next_lsn) == (9, 2, 70)
    assert (position.chain, position.time_ms) == (123, 1000)
    assert (position.sections, whole_one.sections) == ({}, {"a": b"x"})


def test_a_damaged_batch_is_named() -> None:
    error = DamagedBatch(7, 3, 1, 20, 25, "segment 7: a batch does not verify")
    assert (error.sequence, error.serial, error.partition) == (7, 3, 1)
    assert (error.base_offset, error.next_offset, error.problem) == (20, 25, str(error))


def test_a_read_that_ended_nowhere_has_no_next_offset() -> None:
    found = ReadResult([b"one"], 3)
    assert (found.buffers, found.total_bytes, found.cold, found.next_offset) == ([b"one"], 3, False, 0)
