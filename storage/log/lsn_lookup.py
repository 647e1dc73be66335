"""LSNs found in segment files: which frame holds one, which one a partition's offset has, what was freed.

Owns: the lookup from an LSN to a frame's index, for readers of a whole log in order, and from a partition's
offset to its LSN. Nothing is kept for it in the log: a segment knows the first LSN it holds, frames within it
are bisected, and a batch's place in its segment leads to its frame. Heads of frames stay when batches are
cleaned away, so an LSN never moves. A lookup that meets a rewrite, or frames that are being freed, is
FramesUnavailable. Does not: read batches, or know what is committed. For any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.storage.types import Frame, FramesUnavailable

if TYPE_CHECKING:
    from lockstep.storage.log.frame_reader import FrameReader
    from lockstep.storage.log.segments import Segment, SegmentTable

FIRST_LSN: Final = 1
"""The first LSN of a new log."""


class FrameLocation(NamedTuple):
    """The frame with which reading continues."""

    frame_index: int
    """Of the frame that holds `lsn`, or that comes next."""
    lsn: int
    """The one that was requested, or the first after it that may matter."""
    over_gap: bool
    """Frames between the two have been freed, whatever they held."""


class LsnLookup:
    """Lookups over one log's segments."""

    __slots__ = ("_frames", "_table")

    def __init__(self, table: SegmentTable, frames: FrameReader) -> None:
        self._table = table
        self._frames = frames

    def find(
        self, lsn: int, partitions: Iterable[int], upto_index: int, known_index: int | None = None
    ) -> FrameLocation:
        """The frame that holds an LSN, or will. Sealed segments without a batch of these partitions
        are passed over, where all of their frames may be looked at: what is above `upto_index` may be lost
        with a leadership, and its LSNs be used again; or be of a partition that was unknown to the caller.

        Args:
            upto_index: frames above it are not looked at.
            known_index: that of the frame, where the caller knows it.
        Raises FramesUnavailable where frames go away meanwhile, CorruptLog.
        """
        partitions, requested_lsn = tuple(partitions), lsn
        over_gap = False
        for segment in self._table:
            summary = segment.summary
            if summary is not None and segment.tail.next_lsn <= lsn:
                continue
            if lsn < segment.first_lsn:
                lsn, over_gap = segment.first_lsn, True
            is_applied = segment.tail.index <= upto_index
            if summary is not None and is_applied and all([summary.row(each) < 0 for each in partitions]):
                lsn = segment.tail.next_lsn
                continue
            if known_index is not None and lsn == requested_lsn:
                return FrameLocation(known_index, lsn, False)
            last = upto_index if summary is None else min(segment.tail.index, upto_index)
            return FrameLocation(self._bisect(segment.first_index, last, lsn), lsn, over_gap)
        return FrameLocation(upto_index + 1, lsn, over_gap)  # the newest was sealed while this looked

    def _bisect(self, first: int, last: int, lsn: int) -> int:
        """The first of these frames that ends after an LSN; the one after them where none does."""
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            if lsn_after(self._frames.read(middle, 0, middle)[0]) > lsn:
                high = middle
            else:
                low = middle + 1
        return low

    def after(self, index: int) -> int:
        """The LSN that follows on a frame's records. Raises FramesUnavailable, CorruptLog."""
        return lsn_after(self._frames.read(index, 0, index)[0])

    def of_offset(self, partition: int, offset: int) -> int | None:
        """The LSN of the record at an offset, also of one that was cleaned away; None where its frame is not
        on the disk any more. Raises FramesUnavailable, CorruptLog, OSError."""
        all_spans = self._table.spans
        spans = all_spans.get(partition)
        sequences = [] if spans is None else spans.from_offset(offset)
        segment = self._table.get(sequences[0]) if sequences else None
        if self._table.spans is not all_spans:
            raise FramesUnavailable(f"partition {partition}: the segment with offset {offset} was replaced")
        if segment is None:
            return None
        batches = self._table.index_of(segment, partition, load=True)
        if batches is None:
            if self._table.is_current(segment):
                return None
            raise FramesUnavailable(f"partition {partition}: the segment with offset {offset} was replaced")
        row = bisect_right(batches.bases, offset) - 1
        if row < 0 or offset >= batches.next_offset:
            return None
        frame = self._frames.frame_at(segment, batches.positions[row])
        lsn = frame.first_lsn
        for local_id, base_offset, record_count, *_ in frame.entries:
            if local_id == partition and 0 <= offset - base_offset < record_count:
                return lsn + offset - base_offset
            lsn += record_count
        raise FramesUnavailable(f"partition {partition}: offset {offset} is not where it was")

    def kept_from(self, partition: int, log_start_offset: int) -> int:
        """An LSN from which on nothing of a partition is deleted, and below which nothing of it is kept.

        Right after its last deleted record; where the frame of that has been freed, where the frames begin
        again. Raises FramesUnavailable, CorruptLog, OSError.
        """
        if log_start_offset == 0:
            return FIRST_LSN
        spans = self._table.spans
        found = self._kept_from(partition, log_start_offset)
        if self._table.spans is not spans:
            raise FramesUnavailable(f"partition {partition}: segments were replaced")
        return found

    def _kept_from(self, partition: int, log_start_offset: int) -> int:
        deleted = self.of_offset(partition, log_start_offset - 1)
        if deleted is not None:
            return deleted + 1
        first: Segment | None = None
        for segment in reversed(list(self._table)):
            if first is not None and segment.tail.index + 1 != first.first_index:
                break
            if first is not None or self._begins_at_or_below(segment, partition, log_start_offset):
                first = segment
        return FIRST_LSN if first is None else first.first_lsn

    def _begins_at_or_below(self, segment: Segment, partition: int, offset: int) -> bool:
        """Returns whether no segment before this one holds a record of the partition from `offset` on."""
        spans = self._table.spans.get(partition)
        for sequence in [] if spans is None else spans.from_offset(offset) or spans.sequences():
            if sequence >= segment.sequence:
                break
            before = self._table.get(sequence)
            if before is not None and _next_offset(before, partition) > offset:
                return False
        return True


def _next_offset(segment: Segment, partition: int) -> int:
    """After the last record that a segment has, or had, of a partition."""
    if segment.summary is not None:
        row = segment.summary.row(partition)
        return segment.summary.nexts[row] if row >= 0 else 0
    batches = (segment.indexes or {}).get(partition)
    return batches.next_offset if batches is not None else 0


def lsn_after(frame: Frame) -> int:
    """The LSN that follows on a frame's records."""
    return frame.first_lsn + frame.record_count
