"""Reads from segment files: which batches, which bytes of which file, and views of them per batch.

A read takes whole batches of one partition in offset order. Neighbouring batches are read in one go, gaps
included, while a gap is small; views of adjacent batches are merged. Without `wait` only what the page
cache holds is read (RWF_NOWAIT), so that the event loop never waits for a disk.
What another reader has just read is not read again (`shared_reads.py`).
A batch that was cleaned away is a row of length 0, or freed with its whole segment: it is passed over. A read
that meets a truncation, an installation or a rewriting begins again with what is there now.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TypeVar

from storage.log.batch_index import BatchIndex
from storage.log.file_system import NO_WAIT, FileSystem
from storage.log.format import BATCH_LENGTH_OFFSET
from storage.log.segments import Segment, SegmentTable
from storage.log.shared_reads import SharedReads
from storage.types import Buffer, CorruptLog, OffsetOutOfRange, ReadResult

_OFFSET_AND_LENGTH = Struct(">qi")
"""The batch's own word for them: its CRC leaves them out, so a client cannot see that they have rotted."""
GAP_BYTES = 16 << 10
"""Reading this much of other partitions' bytes costs less than another system call."""
RUN_BYTES = 4 << 20
"""The most that one system call reads."""


class BatchPlace:
    """A batch found by time; `read(partition, base_offset, length, base_offset + 1)` reads it."""

    __slots__ = ("base_offset", "length", "max_timestamp", "next_offset")

    def __init__(self, base_offset: int, next_offset: int, length: int, max_timestamp: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.length = length
        self.max_timestamp = max_timestamp

    def __repr__(self) -> str:
        return f"BatchPlace({self.base_offset}, max_timestamp={self.max_timestamp}, {self.length} bytes)"


Answer = TypeVar("Answer")


class _Replaced(Exception):
    """The segments are others than when the read began."""


class LogReader:
    """Reads over a segment table; safe in any thread."""

    __slots__ = ("_fs", "_shared", "_table")

    def __init__(self, fs: FileSystem, table: SegmentTable, shared: SharedReads) -> None:
        self._fs = fs
        self._table = table
        self._shared = shared

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, min_one: bool, wait: bool
    ) -> ReadResult:
        """`DataLog.read` without the tail cache."""
        while True:
            try:
                return self._read(partition, offset, max_bytes, end_offset, min_one, wait)
            except _Replaced:
                continue

    def _read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, min_one: bool, wait: bool
    ) -> ReadResult:
        all_spans = self._table.spans
        spans = all_spans.get(partition)
        if spans is None:
            return ReadResult([], 0)
        sequences = spans.from_offset(offset)
        if not sequences:
            raise OffsetOutOfRange(f"partition {partition}: offset {offset} is below the log")
        buffers: list[Buffer] = []
        total = 0
        for sequence in sequences:
            segment = self._table.acquire(sequence)
            if segment is None:
                if buffers:
                    break
                if self._table.spans is not all_spans:
                    raise _Replaced
                raise OffsetOutOfRange(f"partition {partition}: offset {offset} has just been freed")
            try:
                index = self._table.index_of(segment, partition, load=wait)
                if index is None:
                    if not buffers and not self._table.is_current(segment):
                        raise _Replaced
                    return ReadResult(buffers, total, cold=not buffers)
                wanted = _wanted(index, offset, max_bytes - total, end_offset, min_one and not buffers)
                got = self._read_batches(segment, index, wanted, buffers, wait)
            finally:
                self._table.release(segment)
            total += got
            if wanted.total_bytes != got:
                return ReadResult(buffers, total, cold=not buffers)
            if wanted.more:
                return ReadResult(buffers, total, next_offset=_next(index, wanted.last - 1))
        return ReadResult(buffers, total)

    def _read_batches(
        self, segment: Segment, index: BatchIndex, wanted: _Wanted, buffers: list[Buffer], wait: bool
    ) -> int:
        """Append views of the wanted batches; how many bytes came, fewer where the page cache had no more.
        CorruptLog where a batch is not the one that the index says."""
        total = 0
        for begin, end in _runs(index, wanted.first, wanted.last):
            first = begin
            while first < end:
                last = end
                start = index.positions[first]
                view = self._shared.find(segment.serial, start)
                if view is not None:
                    last = _covered(index, first, end, start + len(view))
                if view is None or last == first:
                    last = end
                    view = self._read_stretch(segment, start, index, last, wait)
                taken, whole = self._take(segment, index, first, last, view, buffers)
                total += taken
                if not whole:
                    return total
                first = last
        return total

    def _read_stretch(
        self, segment: Segment, start: int, index: BatchIndex, last: int, wait: bool
    ) -> memoryview:
        """The segment's bytes from a position up to the end of row `last` - 1, or as many as there are."""
        data = bytearray(index.positions[last - 1] + index.lengths[last - 1] - start)
        got = self._preadv(segment.fd, data, start, wait)
        view = memoryview(data)[:got]
        self._shared.keep(segment.serial, start, view)
        return view

    @staticmethod
    def _take(
        segment: Segment,
        index: BatchIndex,
        first: int,
        last: int,
        view: memoryview,
        buffers: list[Buffer],
    ) -> tuple[int, bool]:
        """Append views of rows [first, last), which begin where `view` does: (bytes, were all there?)."""
        offset_and_length = _OFFSET_AND_LENGTH.unpack_from
        positions, lengths, bases = index.positions, index.lengths, index.bases
        start = positions[first]
        got = len(view)
        total = begin = end = 0
        whole = True
        for i in range(first, last):
            if lengths[i] == 0:
                continue
            at = positions[i] - start
            after = at + lengths[i]
            if after > got:
                whole = False
                break
            if offset_and_length(view, at) != (bases[i], lengths[i] - BATCH_LENGTH_OFFSET):
                raise CorruptLog(
                    f"{segment.path} byte {positions[i]}: not the batch at offset {bases[i]} any more"
                )
            if at != end:
                if end > begin:
                    buffers.append(view[begin:end])
                begin = at
            end = after
            total += after - at
        if end > begin:
            buffers.append(view[begin:end])
        return total, whole

    def _preadv(self, fd: int, data: bytearray, start: int, wait: bool) -> int:
        if not wait:
            try:
                return self._fs.preadv(fd, [data], start, NO_WAIT)
            except OSError:
                return 0  # not in the page cache, or it cannot be read at all: a reader thread will say
        got = 0
        while got < len(data):
            more = self._fs.preadv(fd, [memoryview(data)[got:]], start + got)
            if more == 0:
                break
            got += more
        return got

    def first_at_or_after(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        """The first batch with a record that new or newer. Segments without one are not looked into."""
        return self._settled(lambda: self._at_or_after(partition, timestamp_ms, start_offset, end_offset))

    def _settled(self, ask: Callable[[], Answer]) -> Answer:
        """An answer from segments that were not replaced meanwhile."""
        while True:
            spans = self._table.spans
            answer = ask()
            if self._table.spans is spans:
                return answer

    def _at_or_after(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        for newest, sequence in self._newest_by_segment(partition, start_offset):
            if newest >= timestamp_ms:
                for index, row in self._batches(sequence, partition, start_offset, end_offset):
                    if index.timestamps[row] >= timestamp_ms:
                        return _place(index, row)
        return None

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        """The first batch that is not older than a time. One whose records have no timestamp is as old as
        the last frame of its segment."""
        return self._settled(lambda: self._younger(partition, time_ms, start_offset, end_offset))

    def _younger(self, partition: int, time_ms: int, start_offset: int, end_offset: int) -> BatchPlace | None:
        for newest, sequence in self._newest_by_segment(partition, start_offset):
            segment = self._table.get(sequence)
            sealed = segment is not None and segment.summary is not None
            undated_is_young = segment is not None and (not sealed or segment.tail.time_ms >= time_ms)
            if newest >= time_ms or undated_is_young:
                for index, row in self._batches(sequence, partition, start_offset, end_offset):
                    timestamp = index.timestamps[row]
                    if timestamp >= time_ms or (timestamp < 0 and undated_is_young):
                        return _place(index, row)
        return None

    def newest(self, partition: int, start_offset: int, end_offset: int) -> BatchPlace | None:
        """The first of the batches with the largest max timestamp. Looks into the newest segments only."""
        return self._settled(lambda: self._newest(partition, start_offset, end_offset))

    def _newest(self, partition: int, start_offset: int, end_offset: int) -> BatchPlace | None:
        best: BatchPlace | None = None
        ranked = sorted(self._newest_by_segment(partition, start_offset), key=lambda s: (-s[0], s[1]))
        for timestamp, sequence in ranked:
            if best is not None and timestamp < best.max_timestamp:
                break
            for index, row in self._batches(sequence, partition, start_offset, end_offset):
                here = index.timestamps[row]
                if best is None or (here, -index.bases[row]) > (best.max_timestamp, -best.base_offset):
                    best = _place(index, row)
        return best

    def _newest_by_segment(self, partition: int, start_offset: int) -> Iterator[tuple[int, int]]:
        """(newest timestamp at most, sequence) of the segments from the one that holds `start_offset` on."""
        spans = self._table.spans.get(partition)
        if spans is None:
            return
        for sequence in spans.from_offset(start_offset) or spans.sequences():
            segment = self._table.get(sequence)
            if segment is None:
                continue
            newest = 1 << 63
            if segment.summary is not None:
                row = segment.summary.row(partition)
                newest = segment.summary.timestamps[row] if row >= 0 else -(1 << 63)
            yield newest, sequence

    def _batches(
        self, sequence: int, partition: int, start_offset: int, end_offset: int
    ) -> Iterator[tuple[BatchIndex, int]]:
        """(index, row) of a segment's batches that reach `start_offset` and begin below `end_offset`."""
        index = self._index(sequence, partition)
        if index is None:
            return
        first = max(0, bisect_right(index.bases, start_offset) - 1)
        for row in range(first, bisect_left(index.bases, end_offset)):
            if index.lengths[row] and (row > first or _next(index, row) > start_offset):
                yield index, row

    def _index(self, sequence: int, partition: int) -> BatchIndex | None:
        while (segment := self._table.get(sequence)) is not None:
            index = self._table.index_of(segment, partition, load=True)
            if index is not None or self._table.is_current(segment):
                return index
        return None


class _Wanted:
    """Rows [first, last) of an index; `more` when the budget, not the segment, ended them."""

    __slots__ = ("first", "last", "more", "total_bytes")

    def __init__(self, first: int, last: int, total_bytes: int, more: bool) -> None:
        self.first = first
        self.last = last
        self.total_bytes = total_bytes
        self.more = more


def _wanted(index: BatchIndex, offset: int, budget: int, end_offset: int, min_one: bool) -> _Wanted:
    bases, lengths = index.bases, index.lengths
    count = len(bases)
    first = max(0, bisect_right(bases, offset) - 1)
    if _next(index, first) <= offset:
        first += 1  # the batch that held it has been freed with a segment in which nothing was left
    stop = bisect_left(bases, end_offset, first)
    total = 0
    last = first
    while last < stop:
        length = lengths[last]
        if total + length > budget and (total or not min_one):
            return _Wanted(first, last, total, True)
        total += length
        last += 1
    return _Wanted(first, last, total, stop < count or total >= max(budget, 1))


def _covered(index: BatchIndex, first: int, last: int, end: int) -> int:
    """The row after the last of [first, last) that ends at or before a position in the segment; `first` where
    none does."""
    positions, lengths = index.positions, index.lengths
    row = bisect_left(positions, end, first, last)
    while row > first and positions[row - 1] + lengths[row - 1] > end:
        row -= 1
    return row


def _runs(index: BatchIndex, first: int, last: int) -> Iterator[tuple[int, int]]:
    positions, lengths = index.positions, index.lengths
    if first == last:
        return
    span = positions[last - 1] + lengths[last - 1] - positions[first]
    if span <= RUN_BYTES and span - sum(lengths[first:last]) <= GAP_BYTES:
        yield first, last
        return
    begin = first
    end = positions[first] + lengths[first]
    for i in range(first + 1, last):
        at = positions[i]
        if at - end > GAP_BYTES or at + lengths[i] - positions[begin] > RUN_BYTES:
            yield begin, i
            begin = i
        end = at + lengths[i]
    yield begin, last


def _next(index: BatchIndex, row: int) -> int:
    return index.bases[row + 1] if row + 1 < len(index.bases) else index.next_offset


def _place(index: BatchIndex, row: int) -> BatchPlace:
    return BatchPlace(index.bases[row], _next(index, row), index.lengths[row], index.timestamps[row])
