"""The settings of a data log; each with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.storage.log.format import FRAME_BYTES, SEGMENT_HEADER_BYTES
from lockstep.storage.log.marker import MARKER_BYTES
from lockstep.storage.types import ENTRY_BYTES

FRAME_MAX_BYTES = 16 << 20
WRITE_OVERHEAD_BYTES = MARKER_BYTES + FRAME_BYTES


@dataclass(frozen=True)
class LogOptions:
    """Settings of one `DataLog`."""

    segment_bytes: int = 64 << 20
    """Large enough that rolls are rare, small enough that retention and recovery move in small steps."""
    spare_segments: int = 2
    """Segments ready ahead: one to roll into at once, one while the next is being filled."""
    pool_segments: int = 4
    """Dead segment files kept for recycling, so that steady writing costs no second fill with zeros."""
    tail_cache_bytes: int = 16 << 20
    """What consumers that keep up read from; a second or so of a busy group."""
    shared_reads_bytes: int = 8 << 20
    """What was read from files lately, for others that read the same: eight fetches of a Kafka consumer."""
    recent_frames_bytes: int = 16 << 20
    """What followers that keep up are sent, by index; the payloads are the tail cache's. 0 keeps none."""
    needed_frames_bytes: int = 64 << 20
    """The same of those that an active follower does not have yet: 64 producers with five batches of 100 KB
    each have half as much on its way."""
    index_cache_bytes: int = 16 << 20
    """Loaded batch indexes of sealed segments: 24 bytes a batch."""
    flush: bool = True
    """False: `log.flush=os`, the kernel decides when to write; markers then promise nothing new."""
    reserve_bytes: int = 256 << 10
    """Kept at the end of the last segment for no-ops, deletes and log starts when the disk is full."""

    def __post_init__(self) -> None:
        least = SEGMENT_HEADER_BYTES + 4096
        if not least <= self.segment_bytes < 1 << 32:
            raise ValueError(f"segment_bytes must be {least} to {(1 << 32) - 1}, not {self.segment_bytes}")
        if self.spare_segments < 1:
            raise ValueError("spare_segments must be at least 1")

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame, header and directory included: it never spans segments."""
        return min(FRAME_MAX_BYTES, self.segment_bytes // 2)


MIN_BATCH_BYTES = 61
"""A Kafka record batch without records."""
SPARE_FRAMES = 16


def write_bytes(payload_bytes: int, batch_count: int | None = None) -> int:
    """The bytes that these payloads take in a segment, in a few frames; `batch_count` None: as many batches
    as fit."""
    if batch_count is None:
        batch_count = 1 + payload_bytes // MIN_BATCH_BYTES
    return SPARE_FRAMES * WRITE_OVERHEAD_BYTES + ENTRY_BYTES * batch_count + payload_bytes
