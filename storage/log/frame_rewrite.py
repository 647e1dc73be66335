"""A frame without the batches, or records of batches, that compaction takes out of it. Pure.

The head of the frame stays as it is: the batches that changed have flags (`batch_flags`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lockstep.storage.log.batch_flags import ENTRY_REMOVED, ENTRY_SHORTENED
from lockstep.storage.log.format import BATCH_LENGTH_OFFSET, BATCH_PREFIX
from lockstep.storage.types import ENTRY, ENTRY_BYTES, Buffer, DirectoryEntry, Frame


class RewrittenBatch(NamedTuple):
    """A shortened batch: whole bytes of the same base offset and leader epoch, fewer records."""

    payload: Buffer
    max_timestamp: int


BatchFilter = Callable[[DirectoryEntry, Buffer], RewrittenBatch | bool]
"""The decision about a batch: True keeps it, False removes it, `RewrittenBatch` is written in
its place. A batch that an earlier pass shortened is passed as it is now; a batch that is gone is not passed
at all."""
Changes = dict[int, RewrittenBatch | bool]
"""By row of a frame's directory, the decision about a batch that is removed or rewritten."""


def rewrite_frame(frame: Frame, filter_batch: BatchFilter) -> Frame:
    """The frame without what `filter_batch` removes; the same frame where that is nothing."""
    return apply_changes(frame, filter_frame(frame, filter_batch))


def filter_frame(frame: Frame, filter_batch: BatchFilter) -> Changes:
    """Filters each batch that is not removed; returns, by row, the changes."""
    left = {
        row: filter_batch(entry, frame.payloads[row])
        for row, entry in enumerate(frame.directory)
        if not entry.flags & ENTRY_REMOVED
    }
    return {row: each for row, each in left.items() if each is not True}


def apply_changes(frame: Frame, changes: Changes) -> Frame:
    """The frame with these changes; itself where there are none."""
    if not changes:
        return frame
    directory, payloads = list(frame.directory), list(frame.payloads)
    for row, each in changes.items():
        if isinstance(each, RewrittenBatch):
            directory[row], payloads[row] = _shortened_entry(directory[row], each), each.payload
        else:
            directory[row], payloads[row] = _removed_entry(frame, row), b""
    return Frame(
        frame.kind,
        frame.term,
        frame.index,
        frame.first_lsn,
        frame.time_ms,
        directory,
        payloads,
        frame.record_count,
        frame.head,
    )


def _removed_entry(frame: Frame, row: int) -> DirectoryEntry:
    """The entry of a batch in the head, marked as removed."""
    assert frame.head is not None
    at = len(frame.head) - ENTRY_BYTES * (len(frame.directory) - row)
    entry = DirectoryEntry(*ENTRY.unpack_from(frame.head, at))
    entry.flags |= ENTRY_REMOVED
    return entry


def _shortened_entry(e: DirectoryEntry, left: RewrittenBatch) -> DirectoryEntry:
    """Raises ValueError for a batch of another position."""
    size = len(left.payload)
    base, rest, leader_epoch, _, crc = BATCH_PREFIX.unpack_from(left.payload)
    if (base, rest + BATCH_LENGTH_OFFSET, leader_epoch) != (e.base_offset, size, e.leader_epoch):
        raise ValueError(f"no batch for partition {e.partition} offset {e.base_offset}")
    return DirectoryEntry(
        e.partition,
        base,
        e.record_count,
        size,
        crc,
        leader_epoch,
        left.max_timestamp,
        e.flags | ENTRY_SHORTENED,
    )
