"""Frames of a log group as entries: the decided batches of the delivered partitions, each at its last LSN.

Owns: which batches are entries, and where reading has to stop. Invariants: the cut depends on the log alone,
not on where reading began; it stops before the first batch of a delivered partition that is not decided (an
open transaction's, or one that follows on it in its partition), so that what is committed later keeps its
place; what is skipped (other partitions, control batches, what was aborted, what compaction took away) counts
as read. A batch is filtered by the state of its partition at this moment: commits that came after the frames
were read decide more, never otherwise.
Does not: read, wait, or open a batch's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lockstep.player.core.messages import Entry
from lockstep.protocol.records.batch import peek_header
from lockstep.storage.aborted_transactions import ENTRY_CONTROL, ENTRY_TRANSACTIONAL
from lockstep.storage.log.batch_flags import ENTRY_REMOVED, ENTRY_SHORTENED
from lockstep.storage.log.format import ENTRY_RAW
from lockstep.storage.log.lsn_lookup import lsn_after
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer, Frame

_UNDELIVERED_FLAGS = ENTRY_RAW | ENTRY_CONTROL | ENTRY_REMOVED


class Undecided(NamedTuple):
    """The open transaction that reading waits for."""

    log: PartitionLog
    last_offset: int

    @property
    def is_over(self) -> bool:
        """True if it is decided by now."""
        return self.last_offset < self.log.last_stable_offset


class GroupChunk(NamedTuple):
    """The entries of some frames."""

    entries: list[Entry]
    through_lsn: int
    """Everything up to there was looked at."""
    next_index: int
    """The index of the frame with the LSN after that, or of the next one."""
    undecided: Undecided | None
    """The open transaction at which reading stopped."""
    is_deleted: bool
    """Whether reading stopped before a batch below the start of its partition."""
    is_whole: bool
    """Whether all frames were read."""


def split_into_entries(
    frames: Iterable[Frame],
    first_lsn: int,
    logs: Mapping[int, PartitionLog],
    max_bytes: int,
    through_lsn: int,
) -> GroupChunk:
    """The entries from `first_lsn` on.

    Args:
        frames: committed ones, which follow one another.
        first_lsn: batches that end before it are passed over; one that it lies in is an entry.
        logs: the delivered partitions, by local id.
        max_bytes: of payload; reading stops when there is so much.
        through_lsn: what counts as read already, without any frame.
    """
    entries: list[Entry] = []
    size_bytes = 0
    next_index = 0
    for frame in frames:
        lsn = frame.first_lsn
        for (local_id, base_offset, record_count, _, _, _, _, flags), payload in frame.batches():
            end = lsn + record_count
            log = logs.get(local_id)
            if log is None or end <= first_lsn:
                lsn = end
                continue
            last_offset = base_offset + record_count - 1
            if last_offset < log.log_start_offset:
                return GroupChunk(entries, max(through_lsn, lsn - 1), frame.index, None, True, False)
            if last_offset >= log.last_stable_offset:
                waits = Undecided(log, last_offset)
                return GroupChunk(entries, max(through_lsn, lsn - 1), frame.index, waits, False, False)
            lsn = end
            if not _is_entry(log, base_offset, record_count, flags, payload):
                continue
            # A copy, which does not keep all of its frame in memory for as long as it waits.
            entries.append(Entry(end - 1, bytes(payload), log.index))
            size_bytes += len(payload)
            if size_bytes >= max_bytes:
                return GroupChunk(entries, end - 1, frame.index, None, False, False)
        through_lsn = max(through_lsn, lsn_after(frame) - 1)
        next_index = frame.index + 1
    return GroupChunk(entries, through_lsn, next_index, None, False, True)


def _is_entry(log: PartitionLog, base_offset: int, record_count: int, flags: int, payload: Buffer) -> bool:
    """True if a decided batch has records that count."""
    if flags & _UNDELIVERED_FLAGS:
        return False
    if flags & ENTRY_SHORTENED and not peek_header(payload).record_count:
        return False
    return not (flags & ENTRY_TRANSACTIONAL and _is_aborted(log, base_offset, record_count, payload))


def _is_aborted(log: PartitionLog, base_offset: int, record_count: int, payload: Buffer) -> bool:
    found = log.aborted_between(base_offset, base_offset + record_count)
    if not found:
        return False
    producer_id = peek_header(payload).producer_id
    return any(
        each.producer_id == producer_id and each.first_offset <= base_offset < each.last_offset
        for each in found
    )
