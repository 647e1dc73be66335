"""One pass of compaction over one log group, on this member: maps first, then the segments, oldest first.

Every segment that holds a batch of a partition that is cleaned is rewritten once, whichever partitions it
holds; on the way, and where half of it is dead otherwise, batches below their partition's log start go as
well. Members clean by themselves: below the checkpoint segments are state, not log.

Invariants: segments are filtered from the oldest on and a pass ends where one cannot be rewritten, so that a
tombstone never goes before what it deletes; nothing above the older of the kept checkpoints changes. A pass
that ends early has done no harm: the next one does it again. Runs in a thread; pauses and stops in
`throttle`. Source: Kafka's Cleaner; docs/storage_rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lockstep.protocol.records.batch_filter import FilteredBatch
from lockstep.storage.aborted_transactions import AbortedTransactions
from lockstep.storage.compaction_rules import ENTRY_BYTES, PartitionCleaning
from lockstep.storage.gap_reads import read_over_gaps
from lockstep.storage.log.data_log import DataLog, SealedSegment
from lockstep.storage.log.frame_rewrite import RewrittenBatch
from lockstep.storage.types import LAST_OFFSET, Buffer, DirectoryEntry, FramesUnavailable

READ_BYTES = 1 << 20
DEAD_SHARE = 0.5
"""A segment without anything to compact is rewritten where so much of it is deleted: less would be copied
for little, and what is deleted last takes the whole file along."""


class CleaningPaused(Exception):
    """`throttle` raises it to end a pass: the group closes, or becomes another log."""


class CompactionTarget(NamedTuple):
    """A partition to be cleaned from `dirty_offset` on, below `end_offset`."""

    partition: int
    dirty_offset: int
    end_offset: int
    delete_retention_ms: int
    aborted: AbortedTransactions
    newest_offset: int
    """The offset of the partition's last committed record. Its batch may lose records but is never removed:
    reads need an end to reach."""


class Cleaned(NamedTuple):
    """The result of a pass."""

    ends: dict[int, int]
    """By local id: the offset below which the partition is clean."""
    saved_bytes: int
    """The bytes by which files on the disk have become smaller."""
    segments: int
    """The number of segments that were rewritten."""
    unreadable: Sequence[tuple[int, int]]
    """(local id, base offset) of batches that could not be opened or made again: they stay."""


def clean(
    log: DataLog,
    targets: Sequence[CompactionTarget],
    log_start: Callable[[int], int],
    now_ms: int,
    memory_bytes: int,
    throttle: Callable[[int], None],
    horizons_end: Callable[[], bool] = lambda: True,
) -> Cleaned:
    """Clean partitions as far as a map of `memory_bytes` reaches; those it does not reach are left out.

    No tombstone is removed while `horizons_end` returns False: a snapshot that is being sent has older
    segments as they were, and must not arrive without the tombstones of their records. `log_start`: by local
    id, below which everything is deleted; `LAST_OFFSET` for a closed one, and for the control partition,
    whose records a checkpoint covers. Raises CorruptLog, FramesUnavailable, StorageFull, OffsetOutOfRange
    where the log changed, and whatever `throttle` does.
    """
    passes: dict[int, PartitionCleaning] = {}
    newest = {each.partition: each.newest_offset for each in targets}
    room = memory_bytes // ENTRY_BYTES
    for each in targets:
        if room <= 0:
            break
        found = passes[each.partition] = _map_keys(log, each, now_ms, room, throttle, horizons_end)
        room -= len(found.map)

    def filter_batch(entry: DirectoryEntry, payload: Buffer) -> RewrittenBatch | bool:
        throttle(0)
        local_id = entry.partition
        if entry.base_offset + entry.record_count <= log_start(local_id):
            return False
        cleaning = passes.get(local_id)
        if cleaning is None or entry.base_offset >= cleaning.end:
            return True
        left = cleaning.filter_batch(payload)
        if isinstance(left, FilteredBatch):
            return RewrittenBatch(left.batch, left.max_timestamp)
        return left or entry.base_offset + entry.record_count > newest[local_id]

    def is_closed(local_id: int) -> bool:
        return log_start(local_id) == LAST_OFFSET

    saved_bytes = segments = 0
    for segment in _touched_segments(log, passes, log_start):
        try:
            fewer = log.clean(segment.sequence, filter_batch, throttle, is_closed)
        except (FramesUnavailable, ValueError):
            if log.has_segment(segment.sequence):
                raise
            continue  # freed meanwhile: all its records are deleted, also those with a tombstone
        saved_bytes += fewer
        segments += fewer != 0
    ends = {local_id: each.end for local_id, each in passes.items()}
    unreadable = [(local_id, offset) for local_id, each in passes.items() for offset in each.unreadable]
    return Cleaned(ends, saved_bytes, segments, unreadable)


def _map_keys(
    log: DataLog,
    target: CompactionTarget,
    now_ms: int,
    room: int,
    throttle: Callable[[int], None],
    horizons_end: Callable[[], bool],
) -> PartitionCleaning:
    """A partition's rules, with the last offset of every key in the range that it cleans."""
    local_id, dirty, end, delete_retention_ms, aborted, _ = target
    between = aborted.overlapping(dirty, end)  # no record of those before is left
    found = PartitionCleaning(local_id, dirty, end, now_ms, delete_retention_ms, between, room, horizons_end)
    offset = max(dirty, log.first_offset(local_id) or 0)
    while offset < found.end:
        before = offset
        for buffer in read_over_gaps(log, local_id, 0, offset, READ_BYTES, found.end).buffers:
            offset = found.fill(buffer, throttle)
            if offset >= found.end:
                break
        if offset == before:
            break  # nothing more is left below the end
    return found


def _touched_segments(
    log: DataLog, passes: dict[int, PartitionCleaning], log_start: Callable[[int], int]
) -> Iterator[SealedSegment]:
    """The segments to look through, oldest first."""
    for segment in log.cleanable_segments():
        if (
            any(
                [
                    part.total_bytes and part.first_offset < passes[part.local_id].end
                    for part in segment.partitions_among(passes)
                ]
            )
            or segment.is_mostly_unused
            or segment.dead_bytes(log_start) >= DEAD_SHARE * segment.total_bytes
        ):
            yield segment


def is_half_dead(log: DataLog, log_start: Callable[[int], int]) -> bool:
    """Returns whether `clean` would find something without any partition to compact. For any thread."""
    return next(_touched_segments(log, {}, log_start), None) is not None
