"""Batches on their way into frames: nothing is lost or reordered, and no frame exceeds what a log takes."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from lockstep.protocol.records.batch import BatchHeader
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL
from lockstep.storage.log.format import ENTRY_NOTES, ENTRY_RAW, MAX_FRAME_RECORDS, frame_bytes, frame_size
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NOTES_PARTITION, BatchTooLarge, Frame, FrameKind
from tests.storage.log.frames import batch

BATCH_BYTES = len(batch(0, b"x" * 79))
ROOM_FOR_TWO = frame_size(2, 2 * BATCH_BYTES)


class Filling:
    """An open frame with room for two batches, and a clock that is set by hand."""

    def __init__(self, max_frame_bytes: int = ROOM_FOR_TWO) -> None:
        self.now_ms = 500
        self.open = OpenFrame(max_frame_bytes, lambda: self.now_ms)
        self.partition = PartitionLog(1, bytes(16), 0)

    def add(self, records: int = 1, body_bytes: int = 79, attributes: int = 0) -> int:
        payload = bytearray(batch(0, b"x" * body_bytes))
        header = BatchHeader(
            0, len(payload) - 12, 0, 2, 77, attributes, records - 1, 1, 5, -1, -1, -1, records
        )
        self.waiting_bytes = self.open.close_if_full(len(payload), records)
        return self.open.add(self.partition, payload, header, 3)


def offsets(frames: list[Frame]) -> list[list[int]]:
    return [[each.base_offset for each in frame.directory] for frame in frames]


def test_what_fits_is_one_frame_in_order() -> None:
    filling = Filling()
    assert not filling.open.pending_bytes
    filling.add(records=3)
    filling.add(records=2)
    assert (filling.open.pending_bytes, filling.open.batch_count) == (2 * BATCH_BYTES, 2)
    (frame,) = filling.open.take()
    assert (frame.kind, frame.term, frame.index, frame.first_lsn) == (FrameKind.DATA, 0, 0, 0)
    assert offsets([frame]) == [[0, 3]] and frame.record_count == 5
    assert [bytes(p) for p in frame.payloads] == [batch(0, b"x" * 79, 3), batch(3, b"x" * 79, 3)]
    assert frame_bytes(frame) == ROOM_FOR_TWO


def test_the_next_batch_begins_a_frame_where_it_does_not_fit() -> None:
    filling = Filling()
    for _ in range(5):
        filling.add()
    assert filling.open.batch_count == 1
    frames = filling.open.take()
    assert offsets(frames) == [[0, 1], [2, 3], [4]]
    assert all(frame_bytes(frame) <= ROOM_FOR_TWO for frame in frames)


def test_directory_entries_count_as_bytes() -> None:
    """The payloads alone of ten tiny batches would fit."""
    filling = Filling()
    for _ in range(10):
        filling.add(body_bytes=1)
    frames = filling.open.take()
    assert len(frames) > 1 and all(frame_bytes(frame) <= ROOM_FOR_TWO for frame in frames)
    assert [offset for each in offsets(frames) for offset in each] == list(range(10))


def test_a_batch_is_given_its_place_and_described() -> None:
    filling = Filling()
    filling.partition.next_offset = 40
    assert [filling.add(records=2), filling.add(attributes=0x33)] == [40, 42]
    assert (filling.partition.next_offset, filling.partition.leader_epochs) == (43, [(3, 40)])
    (frame,) = filling.open.take()
    assert [repr(each) for each in frame.directory] == [
        f"DirectoryEntry(1, 40, 2, {BATCH_BYTES}, 77, 3, 5, 0)",
        f"DirectoryEntry(1, 42, 1, {BATCH_BYTES}, 77, 3, 5, {ENTRY_TRANSACTIONAL | ENTRY_CONTROL})",
    ]


def test_what_belongs_together_shares_a_frame() -> None:
    filling = Filling()
    filling.add()
    assert filling.open.close_if_full(2 * BATCH_BYTES, 2, 2) == 3 * BATCH_BYTES
    assert filling.open.batch_count == 0  # the frame before has been closed
    for batches, records in ((3, 2), (2, MAX_FRAME_RECORDS + 1)):
        with pytest.raises(BatchTooLarge, match=f"{batches} batches of {2 * BATCH_BYTES} bytes"):
            filling.open.close_if_full(2 * BATCH_BYTES, records, batches)


def test_a_frame_has_no_more_records_than_its_header_can_count() -> None:
    filling = Filling(1 << 20)
    filling.add(records=MAX_FRAME_RECORDS)
    filling.add(records=1)
    assert [frame.record_count for frame in filling.open.take()] == [MAX_FRAME_RECORDS, 1]


def test_a_batch_that_no_frame_takes_changes_nothing() -> None:
    filling = Filling()
    filling.add()
    with pytest.raises(BatchTooLarge, match=f"a frame takes {ROOM_FOR_TWO}"):
        filling.open.close_if_full(ROOM_FOR_TWO, 1)
    assert filling.open.batch_count == 1
    filling.open.close_if_full(frame_size(0, 0), 1)
    assert len(filling.open.take()) == 1


def test_bytes_are_counted_until_they_are_taken() -> None:
    filling = Filling()
    for number in range(1, 4):
        filling.add()
        assert filling.waiting_bytes == number * BATCH_BYTES
    assert len(filling.open.take()) == 2
    assert (filling.open.batch_count, filling.open.pending_bytes) == (0, 0)
    assert filling.open.close_if_full(5, 1) == 5
    assert filling.open.take() == []


def test_full_frames_alone_are_there_to_take() -> None:
    filling = Filling()
    filling.add()
    filling.add()
    filling.open.close_if_full(BATCH_BYTES, 1)
    assert (filling.open.batch_count, filling.open.pending_bytes) == (0, 2 * BATCH_BYTES)
    assert offsets(filling.open.take()) == [[0, 1]]


def test_a_frame_has_the_time_of_its_first_batch_and_time_never_goes_back() -> None:
    filling = Filling()
    filling.add()
    filling.now_ms = 700
    filling.add()
    assert filling.open.time_ms == 500
    filling.add()
    assert filling.open.time_ms == 700
    filling.now_ms = 100
    filling.add()
    filling.add()
    assert [frame.time_ms for frame in filling.open.take()] == [500, 700, 700]


def test_what_is_cleared_is_forgotten_but_the_time() -> None:
    filling = Filling()
    for _ in range(3):
        filling.add()
    filling.open.clear()
    assert (filling.open.pending_bytes, filling.open.close_if_full(5, 1), filling.open.take()) == (0, 5, [])
    filling.now_ms = 1
    filling.add()
    assert filling.open.time_ms == 500


def test_notes_follow_the_batches_that_they_are_about() -> None:
    filling = Filling(ROOM_FOR_TWO + 200)
    filling.add()
    filling.open.close_if_full(BATCH_BYTES + 5, 1, 2)
    filling.open.add_notes(b"notes")
    filling.open.add_notes(b"!")
    assert (filling.open.batch_count, filling.open.pending_bytes) == (1, BATCH_BYTES + 6)
    filling.open.close_if_full(ROOM_FOR_TWO, 1)  # the frame closes
    filling.add()
    noted, plain = filling.open.take()
    assert offsets([noted, plain]) == [[0, 0], [1]]
    entry = noted.directory[1]
    assert (entry.partition, entry.record_count, entry.length) == (NOTES_PARTITION, 0, 6)
    assert (entry.flags, entry.crc, bytes(noted.payloads[1])) == (
        ENTRY_RAW | ENTRY_NOTES,
        crc32c(b"notes!"),
        b"notes!",
    )
    assert noted.record_count == 1 and noted.total_bytes == frame_size(2, BATCH_BYTES + 6)
    noted.total_bytes = 0
    assert frame_bytes(noted) == frame_size(2, BATCH_BYTES + 6)
