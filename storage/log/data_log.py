"""A log group's data log: frames appended to segments, one write and one flush per group commit.

Invariants:
- `append` writes one marker and the frames that follow it with one `pwritev` and never half succeeds for
  want of space: the segment it needs is ready before it begins.
- What a marker promises was flushed. What `flushed_index` says was flushed (`LogOptions.flush`).
- A frame never spans segments; before a segment's first frame the one before is flushed and the new
  header too (with `flush` off neither, and then no marker promises it).
- A failed write or flush is final: the process must stop (`FlushFailed`).

It does not know Raft (terms and indexes only have to follow one another), topics, or records; it reads no
clock. Everything belongs to one thread but `read_cold`, `timestamp_lookup`, `first_younger`,
`max_timestamp_batch`, `partition_bytes`, `retention_candidates`, `write_checkpoint` and `flush`, which may
run in another one. Rules: `docs/disk_format.md`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

from storage.log.batch_index import BatchIndex, SegmentPartition
from storage.log.file_system import FileSystem, RealFileSystem
from storage.log.format import SEGMENT_HEADER_BYTES, decode_segment_header, position
from storage.log.housekeeping import Housekeeping
from storage.log.options import LogOptions
from storage.log.reading import BatchPlace, LogReader
from storage.log.recovery import Recovery, RecoveryReport, add_to_index
from storage.log.scan import LogTail, SegmentScan
from storage.log.segment_pool import SegmentPool
from storage.log.segments import Segment, SegmentTable
from storage.log.writer import LogWriter
from storage.types import Checkpoint, CorruptLog, Frame, HardState, ReadResult, StorageFull

__all__ = ["BatchPlace", "DataLog", "LogOptions", "RecoveryReport", "SealedSegment"]


class SealedSegment:
    """What is known of a sealed segment without reading it."""

    __slots__ = ("_segment", "_table", "first_index", "last_index", "sequence", "time_ms", "total_bytes")

    def __init__(self, segment: Segment, table: SegmentTable) -> None:
        self._segment = segment
        self._table = table
        self.sequence = segment.sequence
        self.first_index = segment.first_index
        self.last_index = segment.tail.index
        self.time_ms = segment.tail.time_ms
        """The leader's time at its last frame."""
        self.total_bytes = segment.end

    def partitions(self) -> Iterator[SegmentPartition]:
        """Its share per partition, in order of partition number."""
        return self._table.partitions_of(self._segment)


class DataLog(LogWriter):
    """One group's log in one directory. Open it with `DataLog.open`."""

    def __init__(
        self, directory: Path, group_id: int, options: LogOptions, fs: FileSystem, recovery: Recovery
    ) -> None:
        found = recovery.run()
        table = SegmentTable(fs, directory, options.index_cache_bytes, self._rebuild_index)
        pool = SegmentPool(fs, directory, options)
        house = Housekeeping(fs, directory, group_id, table, pool, found.state_file, found.checkpoints)
        super().__init__(fs, group_id, options, table, pool, house, found.tail)
        self.directory = directory
        self.report: RecoveryReport = found.report
        self._reader = LogReader(fs, table)
        self._replay_from = found.checkpoints[-1].place if found.checkpoints else 0
        self.checkpoint: Checkpoint | None = found.checkpoints[-1].checkpoint if found.checkpoints else None
        """What was loaded at open; `replay` gives the frames after it."""
        self._checkpointed_sequence = house.checkpoint_sequence
        self._refused_sequence = 0
        for segment in found.segments:
            table.add(segment)
            if segment.summary is not None and segment.batches is not None:
                house.add_unindexed(segment)
        pool.adopt((found.segments[-1].sequence if found.segments else 0) + 1, found.ready)
        house.adopt_leftover(found.leftover)
        if found.segments:
            self._activate(found.segments[-1], found.segments[-1].end)
            self._mark()
        else:
            self._begin_first_segment()

    def _begin_first_segment(self) -> None:
        """From here on the directory without this segment is damaged, not new: the state file says so."""
        self._begin_segment(0)
        self._fs.fdatasync(self._fd)
        self._flushed = self._segment_position | self._offset
        self._generation = self._house.begin_generation(self._flushed)
        self._mark()

    @classmethod
    def open(
        cls, directory: Path, group_id: int, options: LogOptions | None = None, fs: FileSystem | None = None
    ) -> DataLog:
        """The log of a directory, made where there is none. CorruptLog for rot, NewerFormat, StorageFull
        where a new directory's first segment finds no room; OSError."""
        options = options or LogOptions()
        fs = fs or RealFileSystem()
        return cls(directory, group_id, options, fs, Recovery(fs, directory, group_id, options.segment_bytes))

    def start_preparing(self) -> None:
        """Prepare segments, write index files and free segments in a daemon thread from now on."""
        self._house.start()

    def prepare_now(self) -> None:
        """Do that work here and now, once."""
        self._house.turn()

    @property
    def disk_full(self) -> bool:
        """The last try to prepare a segment, or to write something beside the log, failed."""
        return bool(self._house.disk_error)

    @property
    def disk_error(self) -> str:
        """Why, in words; empty when nothing failed."""
        return self._house.disk_error

    def retry_space(self) -> None:
        """There may be room again: try what failed for want of it."""
        self._refused_sequence = 0
        self._house.poke()

    def written_bytes(self) -> dict[str, int]:
        """What has been written since open, by purpose; page and sector rounding not included."""
        return {
            "log": self.appended_bytes,
            "zero fill": self._pool.filled_bytes,
            "index": self._table.index_bytes,
            "checkpoints": self._house.checkpoint_bytes,
        }

    def close(self) -> None:
        """Flush, note in the state file that all up to here is flushed, close every file."""
        self._house.stop()
        if not self._failed:
            self.flush()
            if self.options.flush:
                self._house.begin_generation(self._written[2])
        self._house.close()
        self._table.close()

    # -- hard state and checkpoints ---------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        return self._house.state.hard

    def save_hard_state(self, hard_state: HardState) -> None:
        """Flushed in both slots when this returns, also with `flush` off. FlushFailed."""
        try:
            self._house.save_hard_state(hard_state)
        except OSError as error:
            raise self._fail(f"hard state: {error}") from error

    @property
    def sealed_since_checkpoint(self) -> bool:
        """True where a segment was sealed after the last checkpoint began: time for another one. One that
        found no room counts until `retry_space`."""
        return self._active.sequence > max(1, self._checkpointed_sequence, self._refused_sequence)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make it durable, together with the frames it stands for. May run in a thread. StorageFull: the
        former one stays in charge; FlushFailed; ValueError for an index the log cannot place any more."""
        sequence = self._active.sequence
        place = self._place_after(checkpoint.index)
        self._flush_to(place)
        try:
            self._house.write_checkpoint(checkpoint, place)
        except StorageFull:
            self._refused_sequence = sequence
            raise
        self._refused_sequence = 0
        self._checkpointed_sequence = max(self._checkpointed_sequence, sequence)
        for segment in self._table.sealed():
            if segment.sequence < place >> 32:
                segment.frame_ends = None

    def _place_after(self, index: int) -> int:
        """The position where frame `index` ends."""
        for segment in self._table:
            ends = segment.frame_ends
            if ends is not None and segment.first_index <= index < segment.first_index + len(ends):
                return position(segment.sequence, ends[index - segment.first_index])
        raise ValueError(f"frame {index} is not among those the log can still place")

    def _flush_to(self, place: int) -> None:
        """Flush what lies below `place`, whatever `flush` says."""
        if place <= self._flushed:
            return
        for segment in self._table:
            if self._flushed >> 32 <= segment.sequence <= place >> 32:
                held = self._table.acquire(segment.sequence)
                if held is None:
                    continue
                try:
                    self._fs.fdatasync(held.fd)
                except OSError as error:
                    raise self._fail(f"{held.path}: flush failed: {error}") from error
                finally:
                    self._table.release(held)
        self._flushed = max(self._flushed, place)

    def replay(self) -> Iterator[Frame]:
        """The frames after the checkpoint, in order, as open verified them. Once, before any append."""
        for segment in self._table:
            if segment.sequence < self._replay_from >> 32 or segment.end <= SEGMENT_HEADER_BYTES:
                continue
            yield from self._frames_of(segment)

    def _frames_of(self, segment: Segment) -> Iterator[Frame]:
        held = self._table.acquire(segment.sequence)
        assert held is not None
        after = self.checkpoint.index if self.checkpoint is not None else 0
        try:
            scan = self._scan(held)
            for frame in scan.frames():
                if frame.index > after:
                    yield frame.frame()
            if scan.offset != segment.end:
                raise CorruptLog(f"{segment.path} byte {scan.offset}: changed since open: {scan.reason}")
        finally:
            self._table.release(held)

    def _scan(self, segment: Segment) -> SegmentScan:
        """A scan over an open segment from its start; it stops at `segment.end` at the latest."""
        fs, fd = self._fs, segment.fd
        decoded = decode_segment_header(fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if decoded is None:
            raise CorruptLog(f"{segment.path} byte 0: the segment header changed since open")
        header = decoded[1]
        state = self._house.state
        return SegmentScan(
            lambda length, offset: fs.pread(fd, length, offset),
            segment.end,
            segment.sequence,
            self._seed,
            LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms),
            SEGMENT_HEADER_BYTES,
            state.generation,
            state.generation_start,
        )

    def _rebuild_index(self, segment: Segment) -> dict[int, BatchIndex]:
        """What a sealed segment's index file said before it was damaged."""
        held = self._table.acquire(segment.sequence)
        batches: dict[int, BatchIndex] = {}
        if held is None:
            return batches
        try:
            scan = self._scan(held)
            for frame in scan.frames():
                add_to_index(batches, frame.entries, frame.payload_offset)
            if scan.offset != segment.end:
                raise CorruptLog(f"{segment.path} byte {scan.offset}: {scan.reason}")
        finally:
            self._table.release(held)
        segment.indexed, segment.batches = False, batches
        self._house.add_unindexed(segment)  # its batches first: another thread writes them down
        return batches

    # -- reading ----------------------------------------------------------------------------------------

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, those that begin below `end_offset`, at most
        `max_bytes` (the first one always, with `min_one`). Never waits for the disk: `cold` says that
        `read_cold` must be asked. OffsetOutOfRange below the log; nothing at or above `end_offset`."""
        if offset >= end_offset:
            return ReadResult([], 0)
        cached = self._tail_cache.read(partition, offset, max_bytes, end_offset, min_one)
        if cached is not None:
            return ReadResult(cached[0], cached[1])
        return self._reader.read(partition, offset, max_bytes, end_offset, min_one, False)

    def read_cold(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True
    ) -> ReadResult:
        """`read`, waiting for the disk where it must; for a reader thread."""
        if offset >= end_offset:
            return ReadResult([], 0)
        return self._reader.read(partition, offset, max_bytes, end_offset, min_one, True)

    def timestamp_lookup(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        """The first batch in the range whose newest record is that new or newer. May load an index file."""
        return self._reader.first_at_or_after(partition, timestamp_ms, start_offset, end_offset)

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        """The first batch in the range that is not older; one without timestamps is as old as the end of
        its segment, and in the newest segment it is young. May load index files."""
        return self._reader.first_younger(partition, time_ms, start_offset, end_offset)

    def max_timestamp_batch(self, partition: int, start_offset: int, end_offset: int) -> BatchPlace | None:
        """The first of the batches with the newest record of the range. May load index files."""
        return self._reader.newest(partition, start_offset, end_offset)

    # -- retention --------------------------------------------------------------------------------------

    def partition_bytes(self, partition: int, from_offset: int) -> int:
        """Bytes of batches from `from_offset` on; a sealed segment that holds it counts whole."""
        spans = self._table.spans.get(partition)
        total = 0
        for sequence in spans.sequences() if spans is not None else ():
            segment = self._table.get(sequence)
            if segment is None:
                continue
            summary, batches = segment.summary, segment.batches
            if summary is not None:
                row = summary.row(partition)
                total += summary.totals[row] if summary.nexts[row] > from_offset else 0
            elif batches is not None and partition in batches:
                index = batches[partition]
                total += sum(index.lengths[bisect_left(index.bases, from_offset) :])
        return total

    def first_offset(self, partition: int) -> int | None:
        """The lowest offset of a partition that any segment holds; None where none holds a batch of it."""
        spans = self._table.spans.get(partition)
        return spans.first_offset if spans is not None else None

    def segments(self) -> list[SealedSegment]:
        """The sealed segments, oldest first."""
        return [SealedSegment(segment, self._table) for segment in self._table.sealed()]

    def retention_candidates(self) -> Iterator[tuple[SealedSegment, SegmentPartition]]:
        """Every (sealed segment, partition) pair, oldest segment first: what retention looks at."""
        for segment in self.segments():
            for share in segment.partitions():
                yield segment, share

    def free_dead_segments(self, log_starts: Callable[[int], int]) -> int:
        """Free the sealed segments in which every partition ends below its log start; how many. Only below
        the older of the two kept checkpoints, so that either serves. Files follow in the background."""
        below = self._house.freeable_below()
        dead = []
        for segment in self._table.sealed():
            if segment.sequence >= below:
                break
            if all(
                share.last_offset < log_starts(share.partition)
                for share in self._table.partitions_of(segment)
            ):
                dead.append(segment)
        for segment in dead:
            self._table.remove(segment)
        if dead:
            self._house.free(dead)
            self._house.poke()
        return len(dead)

    # -- truncation -------------------------------------------------------------------------------------

    def truncate(self, last_index: int) -> None:
        """Forget the frames after `last_index` (which is above the checkpoint): when this returns they
        cannot come back. FlushFailed; ValueError below what the log can still place."""
        if last_index >= self.last_index:
            return
        place = self._place_after(last_index)
        self._flush_to(place)
        try:
            generation = self._house.begin_generation(place)
        except OSError as error:
            raise self._fail(f"state: {error}") from error
        self._tail_cache.clear()
        segments = list(self._table)
        dropped = [s for s in segments if s.sequence > place >> 32]
        for segment in reversed(dropped):
            self._table.remove(segment)
        self._house.forget(dropped)
        keep = self._table.get(place >> 32)
        assert keep is not None
        self._table.remove(keep)
        self._reopen(keep, place & 0xFFFFFFFF)
        self._generation = generation
        self._flushed = place
        self._table.add(keep)
        self._activate(keep, keep.end)
        self._mark()
        self.flushed_index = min(self.flushed_index, last_index)

    def _reopen(self, segment: Segment, end: int) -> None:
        """Make a segment the active one again, its frames ending at `end`."""
        self._house.forget_index(segment)
        if segment.fd < 0:
            segment.fd = self._fs.open(segment.path)
        segment.end = end
        scan = self._scan(segment)
        segment.batches, segment.summary, segment.indexed = {}, None, False
        segment.frame_ends = ends = array("I")
        for frame in scan.frames():
            add_to_index(segment.batches, frame.entries, frame.payload_offset)
            ends.append(frame.end)
        if scan.offset != end:
            raise CorruptLog(f"{segment.path} byte {scan.offset}: {scan.reason}, before the cut at {end}")
        segment.tail = scan.tail
        self._follow(scan.tail)
