"""A log group's data log: frames appended to segments, one write and one flush per group commit.

Invariants:
- `append` writes one marker and the frames that follow it with one `pwritev` and never half succeeds for
  want of space: the segment it needs is ready before it begins.
- Everything that a marker promises was flushed, and so was everything up to `flushed_index`
  (`LogOptions.flush`).
- A frame never spans segments; before a segment's first frame the one before is flushed and the new
  header too (with `flush` off neither, and then no marker promises it).
- A failed write or flush is final: the process must stop (`FlushFailed`).

It does not know Raft (terms and indexes only have to follow one another), topics, or records; it reads no
clock. Retention, scrubbing, cleaning and joining are in `segment_maintenance`.

Everything belongs to one thread but what may run in another one: opening, closing, reads (`read_cold`,
`first_offset`, `timestamp_lookup`, `first_younger`, `max_timestamp_batch`, `partition_bytes`, `lsns`), frames
and checkpoints for others (`frames_cold`, `chain_at_cold`, `snapshot_frames`, `next_on_disk`,
`load_checkpoint`), what to clean or delete (`segments`, `cleanable_segments`, `has_segment`,
`partition_in_segments`), `scrub`, `write_checkpoint`, `rewrite_segment`, `drop_deleted_damage`, `as_cleaned`,
`clean`, `join`, `has_small_neighbours`, `begin_install` with `add` and `prepare`, `flush`.
Rules: `docs/disk_format.md`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.file_system import FileSystem, RealFileSystem, WatchedFileSystem
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, chain_of, segment_of
from lockstep.storage.log.lsn_lookup import LsnLookup
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.origin_file import read_origin, write_origin
from lockstep.storage.log.recovery import Recovery
from lockstep.storage.log.recovery_result import Recovered, RecoveryReport
from lockstep.storage.log.salvage import end_search, is_search_due
from lockstep.storage.log.sealed_segment import SealedSegment
from lockstep.storage.log.segment_maintenance import MaintainedLog
from lockstep.storage.log.segment_pool import FillMode, SegmentPool
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import (
    Checkpoint,
    CorruptLog,
    Frame,
    HardState,
    ReadResult,
    StorageFull,
    WriteFailed,
)

__all__ = ["BatchLocation", "DataLog", "LogOptions", "RecoveryReport", "SealedSegment"]


class DataLog(MaintainedLog):
    """One group's log in one directory. Open it with `DataLog.open`."""

    def __init__(
        self, directory: Path, group_id: int, options: LogOptions, fs: WatchedFileSystem, recovery: Recovery
    ) -> None:
        found = recovery.run()
        table = SegmentTable(fs, options.index_cache_bytes, self._rebuild_index)
        pool = SegmentPool(fs, directory, options)
        maintenance = BackgroundMaintenance(
            fs, directory, group_id, table, pool, found.state_file, found.checkpoints
        )
        super().__init__(
            fs, directory, group_id, options, table, pool, maintenance, found.tail, found.may_join
        )
        self.report: RecoveryReport = found.report
        self.lsns = LsnLookup(table, self._frame_reader)
        """For any thread, too."""
        self._replay_from = found.checkpoints[-1].position if found.checkpoints else 0
        self.checkpoint: Checkpoint | None = found.checkpoints[-1].checkpoint if found.checkpoints else None
        """What was loaded at open, with its sections until `forget_sections`; `replay` continues after it."""
        self._checkpointed_sequence = maintenance.checkpoint_sequence
        self._refused_sequence = 0
        for segment in found.segments:
            table.add(segment)
            if segment.summary is not None and segment.indexes is not None:
                maintenance.add_unindexed(segment)
        self.corruption_found = self.damage.load()
        if found.lost:
            self.damage.note_lost(found.lost)
        try:
            self._resume_appends(found)
        except BaseException:  # a caller that retries must not run out of descriptors
            table.close()
            found.state_file.close()
            raise

    def _resume_appends(self, found: Recovered) -> None:
        """Continues at the end of the log. StorageFull, WriteFailed, FlushFailed."""
        self._pool.adopt((found.segments[-1].sequence if found.segments else 0) + 1, found.ready)
        self._maintenance.adopt_leftover(found.leftover)
        if found.segments:
            self._activate(found.segments[-1], found.segments[-1].end)
            self._mark()
        else:
            self._begin_first_segment()

    def _begin_first_segment(self) -> None:
        """Records in the state file that the directory has a segment: without it the directory is damaged,
        not new."""
        if not self._pool.ready_count:
            self._pool.prepare(FillMode.COMPLETE)  # no write waits for it yet
        self._begin_segment(0)
        self._fs.fdatasync(self._fd)
        self._flushed = self._segment_position | self._offset
        self._generation = self._maintenance.begin_generation(self._flushed)
        self._mark()

    @classmethod
    def open(
        cls,
        directory: Path,
        group_id: int,
        options: LogOptions | None = None,
        fs: FileSystem | None = None,
        *,
        salvage: bool = False,
        salvage_incarnation: int = 0,
    ) -> DataLog:
        """The log of a directory, made where there is none. CorruptLog for corruption, NewerFormat,
        StorageFull, WriteFailed where a new directory's first segment cannot be written; OSError.

        `salvage` cuts the log at corruption above the newest checkpoint (`report.salvaged_from`) and makes a
        lost hard state again, with this incarnation (`report.salvaged_state`). Either way acknowledged frames
        or votes may be lost: the member must rejoin as one that never voted.
        """
        options = options or LogOptions()
        watched = WatchedFileSystem(fs or RealFileSystem())
        incarnation = salvage_incarnation if salvage else None
        recovery = Recovery(watched, directory, group_id, options.segment_bytes, incarnation)
        return cls(directory, group_id, options, watched, recovery)

    def start_preparing(self) -> None:
        """Prepare segments, write index files and free segments in a daemon thread from now on."""
        self._maintenance.start()

    def prepare_now(self) -> None:
        """Does that work once, in this thread."""
        self._maintenance.run_once()

    @property
    def disk_full(self) -> bool:
        """The last try to prepare a segment, or to write beside the log, found no room."""
        return bool(self._maintenance.disk_error)

    @property
    def disk_error(self) -> str:
        """The reason of that failure; empty where there was room."""
        return self._maintenance.disk_error

    @property
    def write_error(self) -> str:
        """Why the last try to prepare a segment, or to write beside the log, failed for another reason than
        a full disk or quota; empty when none did."""
        return self._maintenance.write_error

    @property
    def disk_failures(self) -> int:
        """The number of attempts that found no room since open: it also counts between two checks."""
        return self._maintenance.disk_failures

    def retry_space(self) -> None:
        """Retries what could not be written: there may be room."""
        self._refused_sequence = 0
        self._maintenance.wake()

    def yield_room(self, yielding: bool) -> None:
        """Sets whether an installation, in this log or another on its disk, finds no room: as long as that is
        so, files that only save work later are given back."""
        if yielding != self._pool.yielding:
            self._pool.yielding = yielding
            self._maintenance.wake()

    def written_bytes(self) -> dict[str, int]:
        """Bytes written since open, by purpose; page and sector rounding not included."""
        return {
            "log": self.appended_bytes,
            "zero fill": self._pool.filled_bytes,
            "index": self._table.index_bytes,
            "checkpoints": self._maintenance.checkpoint_bytes,
        }

    @property
    def size_bytes(self) -> int:
        """The size of all segments, each up to its last write."""
        return sum(segment.end for segment in self._table.sealed()) + self._offset

    @property
    def has_origin(self) -> bool:
        """Returns whether an origin was recorded: then this is no new log. CorruptLog."""
        return read_origin(self._fs, self.directory) is not None

    def origin(self, initial: bytes) -> bytes:
        """Returns the contents of the origin file, which the first call writes. Raises CorruptLog,
        FlushFailed."""
        found = read_origin(self._fs, self.directory)
        if found is None:
            try:
                write_origin(self._fs, self.directory, initial)
            except OSError as error:
                raise self._fail(f"origin: {error}") from error
            return initial
        return found

    def close(self) -> None:
        """Flush, note in the state file that all up to here is flushed, close every file."""
        self._maintenance.stop()
        if self._installation is not None:
            self._installation.abort()
        if not self._failed:
            self.flush()
            if self.options.flush:
                with contextlib.suppress(OSError):  # the next open finds out by itself
                    self._maintenance.begin_generation(self._written[2])
        self._maintenance.close()
        self._table.close()

    # -- hard state and checkpoints ---------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        return self._maintenance.state.hard

    def save_hard_state(self, hard_state: HardState) -> None:
        """Flushed in both slots when this returns, also with `flush` off. FlushFailed."""
        try:
            self._maintenance.save_hard_state(hard_state)
        except OSError as error:
            raise self._fail(f"hard state: {error}") from error

    @property
    def sealed_since_checkpoint(self) -> bool:
        """True where a segment was sealed after the last checkpoint began: time for another one. One that
        could not be written counts until `retry_space`."""
        return self._active.sequence > max(1, self._checkpointed_sequence, self._refused_sequence)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make it durable, together with the frames it stands for. May run in a thread. StorageFull,
        WriteFailed: the former one stays in charge; FlushFailed; ValueError for an index the log cannot place
        any more."""
        sequence = self._active.sequence
        position = self._position_after(checkpoint.index)
        self._flush_to(position)
        try:
            self._maintenance.write_checkpoint(checkpoint, position)
        except (StorageFull, WriteFailed):
            self._refused_sequence = sequence
            raise
        self._refused_sequence = 0
        self._checkpointed_sequence = max(self._checkpointed_sequence, sequence)
        below = self._maintenance.freeable_below()
        for segment in self._table.sealed():
            if segment.sequence < below:
                segment.frame_ends = None

    def forget_sections(self) -> None:
        """The checkpoint that was loaded at open has been restored."""
        if self.checkpoint is not None:
            self.checkpoint = self.checkpoint.without_sections()

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest whole checkpoint, from its file; for any thread."""
        return self._maintenance.load_checkpoint()

    def replay(self) -> Iterator[Frame]:
        """The frames after the checkpoint, in order, as open verified them. Once, before any append."""
        for segment in self._table:
            if segment.sequence < segment_of(self._replay_from) or segment.end <= SEGMENT_HEADER_BYTES:
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

    @property
    def is_search_due(self) -> bool:
        """Returns whether the log was salvaged, now or before, and its missing records are not recorded, or
        not any more."""
        return (
            self.report.salvaged_state or self.damage.is_unreadable or is_search_due(self._fs, self.directory)
        )

    def record_missing(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Ends the search: the missing ranges, (local id, first offset, end offset), go to `damage`. Raises
        OSError; then the next start searches again."""
        self.damage.note_missing(ranges, "the segments that held these records are missing")
        if is_search_due(self._fs, self.directory):
            end_search(self._fs, self.directory)

    # -- frames by index --------------------------------------------------------------------------------

    @property
    def oldest_index(self) -> int:
        """The first frame that is still on the disk; some between it and `first_kept_index` may not be."""
        return next(iter(self._table)).first_index

    @property
    def oldest_lsn(self) -> int:
        """The LSN with which `oldest_index` begins. For any thread."""
        return next(iter(self._table)).first_lsn

    @property
    def oldest_segment(self) -> int:
        """The sequence of the segment that begins with `oldest_index`."""
        return next(iter(self._table)).sequence

    @property
    def unbroken_index(self) -> int:
        """From here on every frame is on the disk: freed segments may have left gaps below."""
        first = self._active.first_index
        for segment in reversed(self._table.sealed()):
            if segment.tail.index + 1 != first:
                break
            first = segment.first_index
        return first

    @property
    def first_kept_index(self) -> int:
        """From here on every frame can be read by index: from the older of the two kept checkpoints on."""
        kept = self._maintenance.checkpoints
        below = self._maintenance.freeable_below()
        first = self._active
        for segment in reversed(self._table.sealed()):
            if segment.sequence != first.first_sequence - 1 or (
                segment.rewritten and (below == 0 or segment.sequence < below)
            ):
                break
            first = segment
        return max(first.first_index, kept[0].checkpoint.index + 1) if len(kept) > 1 else first.first_index

    def recent_chain_at(self, index: int) -> int | None:
        """The chain value after a frame, None where it is not in memory."""
        if index == self.last_index:
            return self.chain
        frame = self._recent.get(index)
        return chain_of(frame.head) if frame is not None and frame.head is not None else None

    def chain_at(self, index: int) -> int | None:
        """The chain value after a frame, None where nothing here knows it. May read a few bytes."""
        found = self.recent_chain_at(index)
        return found if found is not None else self.chain_at_cold(index)

    def chain_at_cold(self, index: int) -> int | None:
        """`chain_at` without what is in memory, for any thread: the newest frames change concurrently."""
        for placed in self._maintenance.checkpoints:
            if placed.checkpoint.index == index:
                return placed.checkpoint.chain
        return self._frame_reader.chain_at(index)

    def frames(self, first_index: int, max_bytes: int) -> list[Frame] | None:
        """Frames from `first_index` on, at most `max_bytes` but at least one, where they are in memory;
        None where `frames_cold` must read them; an empty list beyond the end."""
        return self._recent.read(first_index, max_bytes) if first_index <= self.last_index else []

    def frames_cold(self, first_index: int, max_bytes: int) -> list[Frame]:
        """`frames` from the disk, for any thread. FramesUnavailable below the log or beyond a concurrent
        truncation; CorruptLog."""
        return self._frame_reader.read(first_index, max_bytes, self.last_index)

    def snapshot_frames(self, from_index: int, upto_index: int, max_bytes: int) -> list[Frame]:
        """The frames that a snapshot sends with its checkpoint, of all that is on the disk, also below
        `first_kept_index`, at most `max_bytes` but at least one, none above `upto_index`. They follow one
        another; the first may come after `from_index` where frames were freed (`chain_at_cold` returns the
        chain value at the index before it). What was cleaned is marked (`marks`). For any thread;
        FramesUnavailable where the log was replaced meanwhile; CorruptLog."""
        first = self.next_on_disk(from_index)
        return self._frame_reader.read(first, max_bytes, min(upto_index, self.last_index))

    def next_on_disk(self, index: int) -> int:
        """This frame, or the first after it that is on the disk or is to come. For any thread."""
        for segment in self._table:
            ends = segment.frame_ends
            last = segment.tail.index if ends is None else segment.first_index + len(ends) - 1
            if last >= index:
                return max(index, segment.first_index)
        return max(index, self.last_index + 1)

    # -- reading ----------------------------------------------------------------------------------------

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, those that begin below `end_offset`, at most
        `max_bytes` (the first one always, with `min_one`). Never waits for the disk: `cold` is True where
        `read_cold` must read them. OffsetOutOfRange below the log; nothing at or above `end_offset`."""
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
    ) -> BatchLocation | None:
        """The first batch in the range whose newest record is that new or newer. May load an index file."""
        return self._reader.first_at_or_after(partition, timestamp_ms, start_offset, end_offset)

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        """The first batch in the range that is not older; one without timestamps is as old as the end of
        its segment, and in the newest segment it is young. May load index files."""
        return self._reader.first_younger(partition, time_ms, start_offset, end_offset)

    def max_timestamp_batch(self, partition: int, start_offset: int, end_offset: int) -> BatchLocation | None:
        """The first of the batches with the newest record of the range. May load index files."""
        return self._reader.newest(partition, start_offset, end_offset)
