"""A sealed segment as retention, the cleaner and scrubbing see it: what is known of it without reading it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log.segments import Segment, SegmentTable


class SealedSegment:
    """A moment's view: the segment may be freed, or another one in its place, any time."""

    __slots__ = (
        "_segment",
        "_table",
        "file_bytes",
        "first_index",
        "is_mostly_unused",
        "last_index",
        "sequence",
        "time_ms",
        "total_bytes",
    )

    def __init__(self, segment: Segment, table: SegmentTable) -> None:
        self._segment = segment
        self._table = table
        self.sequence = segment.sequence
        self.first_index = segment.first_index
        self.last_index = segment.tail.index
        self.time_ms = segment.tail.time_ms
        """The leader's time at its last frame."""
        self.total_bytes = segment.end
        self.file_bytes = segment.size
        self.is_mostly_unused = segment.is_mostly_unused

    def partitions(self) -> Iterator[SegmentPartition]:
        """Its partitions, in the order of local ids."""
        return self._table.partitions_of(self._segment)

    def partitions_among(self, local_ids: Collection[int]) -> Iterator[SegmentPartition]:
        """Some partitions, where they have batches in it, in no order."""
        summary = self._segment.summary
        return summary.partitions_among(local_ids) if summary is not None else iter(())

    def is_dead(self, log_start: Callable[[int], int]) -> bool:
        """Returns whether all of it is below the log starts of its partitions, the control partition
        included."""
        summary = self._segment.summary
        return summary is not None and summary.live_row(log_start, self._segment.first_live_row) < 0

    def dead_bytes(self, log_start: Callable[[int], int]) -> int:
        """Bytes of partitions that have nothing here from their log start on."""
        summary = self._segment.summary
        return summary.dead_bytes(log_start) if summary is not None else 0
