"""Reads from segment files: which batches, which bytes of which file, and views of them per batch.

A read takes whole batches of one partition in offset order. Neighbouring batches are read in one go, gaps
included, while a gap is small; views of adjacent batches are merged. Without `wait` only what the page
cache holds is read (RWF_NOWAIT), so that the event loop never waits for a disk.
What another reader has just read is not read again (`shared_reads.py`).
A batch that was cleaned away is a row of length 0, or freed with its whole segment: it is passed over. A read
that meets a truncation, an installation or a rewrite begins again with the present segments.
Every batch that is read from a file is verified, unless `verified_batches` has it: its own CRC-32C, and
against the index the fields that this leaves out. A run of batches is verified by its CRC-32C in the index;
where that differs, or not all of it is there, it is read again by its batches. A changed byte never leaves
the log (decision 45). A read ends before a damaged batch. A read that begins at one raises DamagedBatch, or
passes over it where an operator has given its offsets up.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn, TypeVar

from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.batch_verification import first_bad_row
from lockstep.storage.log.damage import DamageTable
from lockstep.storage.log.file_system import NO_WAIT, FileSystem, is_lost, unless_lost
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log.lost_segments import LostFile
from lockstep.storage.log.partition_spans import PartitionSpans
from lockstep.storage.log.read_plan import (
    ReadPlan,
    append_views,
    covered_rows,
    next_offset,
    plan_read,
    read_ranges,
)
from lockstep.storage.log.run_table import MAX_VALUE
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.log.shared_reads import SharedReads
from lockstep.storage.log.verified_batches import VerifiedRangesCache
from lockstep.storage.types import (
    CONTROL_PARTITION,
    NOTES_PARTITION,
    Buffer,
    CorruptLog,
    DamagedBatch,
    OffsetOutOfRange,
    ReadResult,
)

SMALL_ROWS = 8
SMALL_BYTES = 8 << 10
"""Below this number of rows, and of bytes before the last, the cache is not used: its `fstat` costs as
much as the checksums."""


class BatchLocation:
    """A batch found by time; `read(partition, base_offset, length, base_offset + 1)` reads it."""

    __slots__ = ("base_offset", "length", "max_timestamp", "next_offset")

    def __init__(self, base_offset: int, next_offset: int, length: int, max_timestamp: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.length = length
        self.max_timestamp = max_timestamp

    def __repr__(self) -> str:
        return f"BatchLocation({self.base_offset}, max_timestamp={self.max_timestamp}, {self.length} bytes)"


Result = TypeVar("Result")


class _SegmentReplaced(Exception):
    """The segments changed after the read began."""


class _OnlySkipped(Exception):
    """A read found only skipped damaged batches; it begins again at `next_offset`."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset


class LogReader:
    """Reads over a segment table; safe in any thread."""

    __slots__ = ("_damage", "_fs", "_monotonic", "_shared", "_table", "_verified")

    def __init__(
        self,
        fs: FileSystem,
        table: SegmentTable,
        shared: SharedReads,
        damage: DamageTable,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fs = fs
        self._monotonic = monotonic
        self._verified = VerifiedRangesCache()
        self._table = table
        self._shared = shared
        self._damage = damage

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, min_one: bool, wait: bool
    ) -> ReadResult:
        """`DataLog.read` without the tail cache."""
        while True:
            try:
                return self._read(partition, offset, max_bytes, end_offset, min_one, wait)
            except _SegmentReplaced:
                continue
            except _OnlySkipped as passed:
                offset = passed.next_offset
                if offset >= end_offset:
                    return ReadResult([], 0, next_offset=offset)
            except DamagedBatch as damaged:
                if wait:
                    self._damage.note(damaged)
                raise

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
        total = given = 0
        for sequence in sequences:
            segment = self._acquire(sequence, partition, offset, bool(buffers), all_spans)
            if segment is None:
                break
            try:
                if buffers and segment.first_sequence <= given:
                    # Joined meanwhile: it holds as well what those before it have given.
                    return ReadResult(buffers, total)
                given = sequence
                index = self._index_in(segment, partition, wait)
                if index is None:
                    if not buffers and not self._table.is_current(segment):
                        raise _SegmentReplaced
                    return ReadResult(buffers, total, cold=not buffers)
                plan = plan_read(index, offset, max_bytes - total, end_offset, min_one and not buffers)
                got = self._read_batches(segment, partition, plan, buffers, wait)
            finally:
                self._table.release(segment)
            total += got
            if plan.total_bytes != got + plan.skipped_bytes:
                return ReadResult(buffers, total, cold=not buffers)
            if plan.skipped_bytes and not buffers:
                raise _OnlySkipped(next_offset(plan.index, plan.last - 1))
            if plan.more:
                return ReadResult(buffers, total, next_offset=next_offset(plan.index, plan.last - 1))
        return ReadResult(buffers, total)

    def _index_in(self, segment: Segment, partition: int, wait: bool) -> BatchIndex | None:
        """`SegmentTable.index_of`. Raises DamagedBatch, over all offsets of the partition in the segment, if
        the index can be had neither from its file nor from the frames."""
        try:
            return self._table.index_of(segment, partition, load=wait)
        except CorruptLog as error:
            self._raise_damaged(segment, partition, error)

    def _acquire(
        self, sequence: int, partition: int, offset: int, has_batches: bool, spans: dict[int, PartitionSpans]
    ) -> Segment | None:
        """The segment with its file open; None if it cannot be opened and the read ends (`has_batches`)."""
        try:
            segment = self._table.acquire(sequence)
        except OSError as error:
            if not has_batches:
                self._raise_lost(sequence, partition, error)
            return None
        if segment is not None or has_batches:
            return segment
        if self._table.spans is not spans:
            raise _SegmentReplaced
        raise OffsetOutOfRange(f"partition {partition}: offset {offset} has just been freed")

    def _raise_lost(self, sequence: int, partition: int, error: OSError) -> NoReturn:
        """Raises DamagedBatch for a segment whose file is lost, over all offsets of the partition in it; the
        error itself where its cause is not the file's content, as EMFILE."""
        segment = self._table.get(sequence)
        if segment is None or not is_lost(error):
            raise error
        self._raise_damaged(segment, partition, error)

    def _raise_damaged(self, segment: Segment, partition: int, error: Exception) -> NoReturn:
        """Raises DamagedBatch over all offsets of the partition in it, _OnlySkipped if they are skipped."""
        row = segment.summary.row(partition) if segment.summary is not None else -1
        if segment.summary is None or row < 0:
            raise error
        if not self._table.is_current(segment):
            raise _SegmentReplaced
        first, end = segment.summary.firsts[row], segment.summary.nexts[row]
        if self._damage.is_skipped(partition, first, end):
            raise _OnlySkipped(end)
        raise DamagedBatch(segment.sequence, segment.serial, partition, first, end, str(error)) from error

    def _read_batches(
        self,
        segment: Segment,
        partition: int,
        plan: ReadPlan,
        buffers: list[Buffer],
        wait: bool,
    ) -> int:
        """Append views of the planned batches; returns their bytes: fewer where the page cache had no more,
        or before a damaged batch. Raises DamagedBatch if no batch comes before that one.

        A run that does not verify, or was not read as a whole, is read again by its batches.
        """
        index, total = plan.index, 0
        owner = segment.serial << 32 | partition
        for begin, end in read_ranges(index, plan.first, plan.last):
            first = begin
            while first < end:
                last = end
                start = index.positions[first]
                view = self._shared.find(owner, start)
                if view is not None:
                    last = covered_rows(index, first, end, start + len(view))
                if view is not None and last > first:
                    total += append_views(index, first, last, view, buffers)
                    first = last
                    continue
                view, last, bad_row = self._read_verified(segment, owner, index, first, end, wait)
                total += append_views(index, first, bad_row, view, buffers)
                first = bad_row
                if bad_row == last:
                    self._shared.keep(owner, start, view)
                    continue
                if index.is_run(bad_row):
                    batches = index.batches(bad_row)
                    each = ReadPlan(batches, 0, len(batches.bases), batches.total_bytes, False)
                    got = self._read_batches(segment, partition, each, buffers, wait)
                    total += got
                    plan.skipped_bytes += each.skipped_bytes
                    if got + each.skipped_bytes != each.total_bytes:
                        return total
                    first += 1
                    continue
                is_there = index.positions[bad_row] + index.lengths[bad_row] - start <= len(view)
                if not (is_there or wait) or not self._passes_over_damaged(
                    segment, partition, index, bad_row, buffers
                ):
                    return total
                plan.skipped_bytes += index.lengths[bad_row]
                first += 1
        return total

    def _read_verified(
        self, segment: Segment, owner: int, index: BatchIndex, first: int, end: int, wait: bool
    ) -> tuple[memoryview, int, int]:
        """Read rows [first, last) of [first, end).

        Returns their bytes, `last`, and the first row that does not verify or was not read, `last` for none.
        """
        start = index.positions[first]
        size = index.positions[end - 1] + index.lengths[end - 1] - start
        is_small = end - first <= SMALL_ROWS and size < SMALL_BYTES
        modified = 0 if is_small else self._fs.modified(segment.fd)
        now = 0.0 if is_small else self._monotonic()
        view, last = self._read_rows_together(segment, start, index, first, end, wait)
        if wait:
            self._verified.forget(owner)
        elif not is_small and self._verified.has(
            owner, index.bases[first], next_offset(index, last - 1), modified, now
        ):
            is_whole = len(view) == index.positions[last - 1] + index.lengths[last - 1] - start
            if is_whole:
                return view, last, last
        bad_row = first_bad_row(index, first, last, view)
        if bad_row > first and not is_small:
            verified_end = next_offset(index, bad_row - 1)
            self._verified.note(owner, index.bases[first], verified_end, modified, now)
        return view, last, bad_row

    def _passes_over_damaged(
        self,
        segment: Segment,
        partition: int,
        index: BatchIndex,
        row: int,
        buffers: list[Buffer],
    ) -> bool:
        """True if the damaged batch of a row is skipped; False if the read ends before it.

        Raises DamagedBatch if nothing comes before that batch, _SegmentReplaced if its segment is replaced.
        """
        if not self._table.is_current(segment):
            raise _SegmentReplaced
        damaged = _damaged_range(segment, partition, index, row)
        if self._damage.is_skipped(partition, damaged.base_offset, damaged.next_offset):
            return True
        if buffers:
            return False
        raise damaged

    def _read_rows_together(
        self, segment: Segment, start: int, index: BatchIndex, first: int, last: int, wait: bool
    ) -> tuple[memoryview, int]:
        """Read rows [first, last): (their bytes, or as many as could be read, and `last`).

        If the disk has lost some of them (EIO), only the first row is read: the returned `last` is lower, and
        a lost row has no bytes.
        """
        data = bytearray(index.positions[last - 1] + index.lengths[last - 1] - start)
        try:
            got = self._preadv(segment.fd, data, start, wait)
        except OSError as error:
            if not is_lost(error):
                raise
            if last > first + 1:
                return self._read_rows_together(segment, start, index, first, first + 1, wait)
            got = 0
        return memoryview(data)[:got], last

    def scan_for_damage(self, sequence: int, throttle: Callable[[int], None]) -> None:
        """Add each damaged batch of a sealed segment to the damage table, all of them where its file is lost.
        OSError as `SegmentRewriter.scrub`."""
        unread: list[OSError] = []
        segment = unless_lost(partial(self._table.acquire, sequence), unread)
        if unread:
            self._damage.note_lost({sequence: LostFile(str(unread[0]), 0)})
        if segment is None:
            return
        try:
            for part in self._table.partitions_of(segment):
                if part.local_id not in (CONTROL_PARTITION, NOTES_PARTITION):
                    self._scan_partition(segment, part, throttle)
        finally:
            self._table.release(segment)

    def _scan_partition(
        self, segment: Segment, part: SegmentPartition, throttle: Callable[[int], None]
    ) -> None:
        local_id = part.local_id
        try:
            index = self._table.index_of(segment, local_id, load=True)
        except CorruptLog as error:
            end = part.last_offset + 1
            self._damage.note(
                DamagedBatch(segment.sequence, segment.serial, local_id, part.first_offset, end, str(error))
            )
            return
        if index is None:
            return
        index = index.by_batch()
        for first, end in read_ranges(index, 0, len(index.bases)):
            while first < end:
                view, last = self._read_rows_together(
                    segment, index.positions[first], index, first, end, True
                )
                bad_row = first_bad_row(index, first, last, view)
                throttle(sum(index.lengths[first : bad_row + 1]))  # what is behind it comes again
                if bad_row < last:
                    self._damage.note(_damaged_range(segment, local_id, index, bad_row))
                first = min(bad_row + 1, last)

    def _preadv(self, fd: int, data: bytearray, start: int, wait: bool) -> int:
        if not wait:
            try:
                return self._fs.preadv(fd, [data], start, NO_WAIT)
            except OSError:
                return 0  # not in the page cache, or unreadable: a reader thread finds out
        got = 0
        while got < len(data):
            more = self._fs.preadv(fd, [memoryview(data)[got:]], start + got)
            if more == 0:
                break
            got += more
        return got

    def first_at_or_after(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        """The first batch with a record that new or newer. Segments without one are not looked into."""
        return self._retry_read(lambda: self._at_or_after(partition, timestamp_ms, start_offset, end_offset))

    def _retry_read(self, read: Callable[[], Result]) -> Result:
        """A response from segments that were not replaced meanwhile."""
        while True:
            spans = self._table.spans
            result = read()
            if self._table.spans is spans:
                return result

    def _at_or_after(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        for newest, sequence in self._newest_by_segment(partition, start_offset):
            if newest >= timestamp_ms:
                for index, row in self._rows(sequence, partition, start_offset, end_offset):
                    if index.timestamps[row] < timestamp_ms:
                        continue
                    for location in _locations(index, row, start_offset, end_offset):
                        if location.max_timestamp >= timestamp_ms:
                            return location
        return None

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        """The first batch that is not older than a time. One whose records have no timestamp is as old as
        the last frame of its segment."""
        return self._retry_read(lambda: self._younger(partition, time_ms, start_offset, end_offset))

    def _younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        for newest, sequence in self._newest_by_segment(partition, start_offset):
            segment = self._table.get(sequence)
            sealed = segment is not None and segment.summary is not None
            undated_is_young = segment is not None and (not sealed or segment.tail.time_ms >= time_ms)
            if newest >= time_ms or undated_is_young:
                for index, row in self._rows(sequence, partition, start_offset, end_offset):
                    here = index.timestamps[row]
                    if here < time_ms and not (undated_is_young and here < MAX_VALUE):
                        continue  # nor is a batch without a timestamp in it: none is so much older
                    for location in _locations(index, row, start_offset, end_offset):
                        timestamp = location.max_timestamp
                        if timestamp >= time_ms or (timestamp < 0 and undated_is_young):
                            return location
        return None

    def newest(self, partition: int, start_offset: int, end_offset: int) -> BatchLocation | None:
        """The first of the batches with the largest max timestamp. Looks into the newest segments only."""
        return self._retry_read(lambda: self._newest(partition, start_offset, end_offset))

    def _newest(self, partition: int, start_offset: int, end_offset: int) -> BatchLocation | None:
        best: BatchLocation | None = None
        ranked = sorted(self._newest_by_segment(partition, start_offset), key=lambda s: (-s[0], s[1]))
        for timestamp, sequence in ranked:
            if best is not None and timestamp < best.max_timestamp:
                break
            for index, row in self._rows(sequence, partition, start_offset, end_offset):
                if best is not None and index.timestamps[row] < best.max_timestamp:
                    continue
                for location in _locations(index, row, start_offset, end_offset):
                    here = location.max_timestamp, -location.base_offset
                    if best is None or here > (best.max_timestamp, -best.base_offset):
                        best = location
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

    def _rows(
        self, sequence: int, partition: int, start_offset: int, end_offset: int
    ) -> Iterator[tuple[BatchIndex, int]]:
        """(index, row) of a segment's batches and runs that reach `start_offset` and begin before
        `end_offset`."""
        index = self._index(sequence, partition)
        if index is None:
            return
        first = max(0, bisect_right(index.bases, start_offset) - 1)
        for row in range(first, bisect_left(index.bases, end_offset)):
            if index.lengths[row] and (row > first or next_offset(index, row) > start_offset):
                yield index, row

    def _index(self, sequence: int, partition: int) -> BatchIndex | None:
        while (segment := self._table.get(sequence)) is not None:
            index = self._table.index_of(segment, partition, load=True)
            if index is not None or self._table.is_current(segment):
                return index
        return None


def _damaged_range(segment: Segment, partition: int, index: BatchIndex, row: int) -> DamagedBatch:
    base = index.bases[row]
    problem = f"{segment.path} byte {index.positions[row]}: the batch at offset {base} does not verify"
    end = next_offset(index, row)
    return DamagedBatch(segment.sequence, segment.serial, partition, base, end, problem)


def _locations(index: BatchIndex, row: int, start_offset: int, end_offset: int) -> Iterator[BatchLocation]:
    """Yields the batches of a row, of a run only those that reach an offset and begin below another."""
    if not index.is_run(row):
        yield _location(index, row)
        return
    batches = index.batches(row)
    for each in range(len(batches.bases)):
        if next_offset(batches, each) > start_offset and batches.bases[each] < end_offset:
            yield _location(batches, each)


def _location(index: BatchIndex, row: int) -> BatchLocation:
    return BatchLocation(index.bases[row], next_offset(index, row), index.lengths[row], index.timestamps[row])
