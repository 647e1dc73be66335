"""The open frame, and full frames before it: the batches that a leader has accepted and not proposed yet.

Owns the limits of a frame, and the offsets of batches. Indexes and LSNs come when the frames are proposed.
"""

from __future__ import annotations

from collections.abc import Callable

from crc32c import crc32c

from lockstep.protocol.records.batch import NO_TIMESTAMP, BatchHeader, patch_whole
from lockstep.storage.log.format import (
    ENTRY_NOTES,
    ENTRY_RAW,
    FRAME_BYTES,
    MAX_FRAME_RECORDS,
    frame_size,
)
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import (
    ENTRY_BYTES,
    NOTES_PARTITION,
    BatchTooLarge,
    Buffer,
    EntryFields,
    Frame,
    FrameKind,
)


class OpenFrame:
    """Batches on their way into frames.

    Args:
        max_frame_bytes: a frame's limit, header and directory included.
        clock_ms: the leader's time for a frame that begins now.
    """

    __slots__ = (
        "_clock_ms",
        "_closed",
        "_entries",
        "_frame_bytes",
        "_max_frame_bytes",
        "_notes",
        "_open_records",
        "_payloads",
        "pending_bytes",
        "time_ms",
    )

    def __init__(self, max_frame_bytes: int, clock_ms: Callable[[], int]) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._clock_ms = clock_ms
        self.time_ms = 0
        """The time of the open frame, or of the last one: fixed by its first batch, so that a caller records
        the time that a replay will see."""
        self.clear()

    def clear(self) -> None:
        """Drops all batches."""
        self._entries: list[EntryFields] = []
        self._payloads: list[Buffer] = []
        self._notes: list[bytes] = []
        self._frame_bytes = FRAME_BYTES
        """Size of the open frame, with header and directory."""
        self._open_records = 0
        self._closed: list[Frame] = []
        self.pending_bytes = 0
        """Payload in all frames; 0 only where there is none: no batch is empty."""

    @property
    def batch_count(self) -> int:
        """The number of batches in the open frame."""
        return len(self._entries)

    def fits(self, batch_bytes: int, record_count: int, batches: int) -> bool:
        """Returns whether this number of batches fits together into the open frame as it is."""
        return (
            self._frame_bytes + ENTRY_BYTES * batches + batch_bytes <= self._max_frame_bytes
            and self._open_records + record_count <= MAX_FRAME_RECORDS
        )

    def close_if_full(self, batch_bytes: int, record_count: int, batches: int = 1) -> int:
        """Closes the open frame where this number of batches does not fit together. Raises BatchTooLarge.

        Returns how many payload bytes there will be with them, in all frames.
        """
        pending_bytes = self.pending_bytes + batch_bytes
        if self.fits(batch_bytes, record_count, batches):
            return pending_bytes
        if frame_size(batches, batch_bytes) > self._max_frame_bytes or record_count > MAX_FRAME_RECORDS:
            what = "a batch" if batches == 1 else f"{batches} batches"
            raise BatchTooLarge(f"{what} of {batch_bytes} bytes; a frame takes {self._max_frame_bytes}")
        self._close()
        return pending_bytes

    def add(self, partition: PartitionLog, batch: bytearray, header: BatchHeader, leader_epoch: int) -> int:
        """Adds a batch that fits into the frame, as its partition's next; returns its base offset."""
        flags = (header.attributes & 0x30) >> 3  # transactional, control: ENTRY_*
        return self.add_batch(
            partition, batch, header.record_count, header.crc, header.max_timestamp, leader_epoch, flags
        )

    def add_batch(
        self,
        partition: PartitionLog,
        batch: bytearray,
        record_count: int,
        crc: int,
        max_timestamp: int,
        leader_epoch: int,
        flags: int = 0,
    ) -> int:
        """Adds a batch as `add` does. Args: flags: of its directory entry.

        Patches offset and epoch into it: here and not in the group, which makes one call for each batch.
        """
        base_offset = partition.next_offset
        size = len(batch)
        patch_whole(batch, base_offset, leader_epoch)
        entries = self._entries
        if not entries:
            self.time_ms = max(self.time_ms, self._clock_ms())
        entries.append(
            (partition.local_id, base_offset, record_count, size, crc, leader_epoch, max_timestamp, flags)
        )
        self._payloads.append(batch)
        self._frame_bytes += ENTRY_BYTES + size
        self.pending_bytes += size
        self._open_records += record_count
        epochs = partition.leader_epochs
        if not epochs or epochs[-1][0] != leader_epoch:
            partition.note_epoch(leader_epoch, base_offset)
        partition.next_offset = base_offset + record_count
        return base_offset

    def add_notes(self, data: bytes) -> None:
        """Adds notes to the frame, which fit into it as a batch would: data that is no record, and that the
        tail machines replay with the frame, such as the locks that its batches raise."""
        self._frame_bytes += len(data) if self._notes else ENTRY_BYTES + len(data)
        self.pending_bytes += len(data)
        self._notes.append(data)

    def take(self) -> list[Frame]:
        """Returns all batches, as frames without index, term and LSN."""
        if self._entries:
            self._close()
        closed, self._closed = self._closed, []
        self.pending_bytes = 0
        return closed

    def _close(self) -> None:
        if self._notes:
            data = b"".join(self._notes)
            flags = ENTRY_RAW | ENTRY_NOTES
            self._entries.append((NOTES_PARTITION, 0, 0, len(data), crc32c(data), 0, NO_TIMESTAMP, flags))
            self._payloads.append(data)
            self._notes = []
        frame = Frame(FrameKind.DATA, 0, 0, 0, self.time_ms, [], self._payloads, self._open_records)
        frame.pack(self._entries)
        frame.total_bytes = self._frame_bytes
        self._closed.append(frame)
        self._entries, self._payloads = [], []
        self._frame_bytes, self._open_records = FRAME_BYTES, 0
