"""Truncation of a log, and its replacement by an installed snapshot.

Both change the state file first, in one save, and then what is in memory: tail cache, recent frames, spans
and segments together, in one step for readers in other threads (`SegmentTable.replace_from`). Both belong
to the log's own thread, and must not run during an append, a flush or a checkpoint. `MaintainedLog` is this
plus the upkeep of sealed segments, `DataLog` the whole.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.batch_index import BatchIndex, add_to_index
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    byte_of,
    chain_of,
    decode_segment_header,
    position_of,
    segment_of,
)
from lockstep.storage.log.frame_reader import FrameReader
from lockstep.storage.log.installation import Installation, PreparedInstallation
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_compaction import SegmentRewriter
from lockstep.storage.log.segment_pool import SegmentPool
from lockstep.storage.log.segment_scan import LogTail, SegmentScan
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.log.writer import LogWriter
from lockstep.storage.types import Checkpoint, CorruptLog, FlushFailed


class TruncatableLog(LogWriter):
    """A log that can be truncated, or replaced by a snapshot."""

    checkpoint: Checkpoint | None
    _checkpointed_sequence: int
    _refused_sequence: int
    _replay_from: int

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        group_id: int,
        options: LogOptions,
        table: SegmentTable,
        pool: SegmentPool,
        maintenance: BackgroundMaintenance,
        tail: LogTail,
    ) -> None:
        super().__init__(fs, group_id, options, table, pool, maintenance, tail)
        self.directory = directory
        self._frame_reader = FrameReader(fs, table, self._scan)
        self._segment_rewriter = SegmentRewriter(
            fs, directory, group_id, table, maintenance, self._frame_reader, self._scan, options.segment_bytes
        )
        self._installation: Installation | None = None

    def _position_after(self, index: int) -> int:
        """The position where the next segment begins, if frame `index` is the last of its own, else where it
        ends: a checkpoint of all that is sealed lies above it."""
        position = 0
        for segment in self._table:
            ends = segment.frame_ends
            if segment.first_index == index + 1:
                return position_of(segment.sequence, SEGMENT_HEADER_BYTES)
            if ends is not None and segment.first_index <= index < segment.first_index + len(ends):
                position = position_of(segment.sequence, ends[index - segment.first_index])
        if position == 0:
            raise ValueError(f"frame {index} is not among those the log can still place")
        return position

    def _flush_to(self, position: int) -> None:
        """Flush the log below `position`, also with the option `flush` off. Raises FlushFailed.

        For a checkpoint, in its thread, something is left to flush only where the other members have
        committed it while this one's flush is still under way in the flusher's thread. Until that has ended
        the loop neither appends nor flushes: it never waits for what is done here.
        """
        with self._sync:
            if self._failed:
                raise FlushFailed(self._failed)
            if position <= self._flushed:
                return
            for segment in self._table:
                if segment_of(self._flushed) <= segment.sequence <= segment_of(position):
                    self._flush_segment(segment.sequence)
            self._flushed = position

    def _flush_segment(self, sequence: int) -> None:
        held = self._table.acquire(sequence)
        if held is None:
            return
        try:
            self._fs.fdatasync(held.fd)
        except OSError as error:
            raise self._fail(f"{held.path}: flush failed: {error}") from error
        finally:
            self._table.release(held)

    def _before_first(self, segment: Segment) -> LogTail:
        """The log's tail before an open segment's first frame, from its header."""
        decoded = decode_segment_header(self._fs.pread(segment.fd, SEGMENT_HEADER_BYTES, 0))
        if decoded is None:
            raise CorruptLog(f"{segment.path} byte 0: the segment header changed since open")
        header = decoded[1]
        return LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms)

    def _scan(self, segment: Segment) -> SegmentScan:
        """A scan over an open segment from its start; it stops at `segment.end` at the latest."""
        fs, fd = self._fs, segment.fd
        state = self._maintenance.state
        scan = SegmentScan(
            lambda length, offset: fs.pread(fd, length, offset),
            segment.end,
            segment.sequence,
            self._seed,
            self._before_first(segment),
            SEGMENT_HEADER_BYTES,
            state.generation,
            state.generation_start,
            segment.rewritten,
        )
        scan.last_generation = segment.generation
        return scan

    def _rebuild_index(self, segment: Segment) -> dict[int, BatchIndex]:
        """Rebuilds the index of a sealed segment whose index file is damaged."""
        indexes: dict[int, BatchIndex] = {}
        if not self._table.acquire_current(segment):
            return indexes
        try:
            scan = self._scan(segment)
            for frame in scan.frames():
                add_to_index(indexes, frame.entries, frame.payload_offset, frame.payloads)
            if scan.offset != segment.end:
                if self._segment_rewriter.was_replaced(segment):
                    return {}
                raise CorruptLog(f"{segment.path} byte {scan.offset}: {scan.reason}")
        finally:
            self._table.release(segment)
        segment.indexed, segment.indexes = False, indexes
        self._maintenance.add_unindexed(segment)  # its batches first: another thread writes them down
        return indexes

    # -- truncation -------------------------------------------------------------------------------------

    def truncate(self, last_index: int) -> None:
        """Forget the frames after `last_index`. A write that follows and is torn may bring some back, which
        Raft tolerates (model/README.md, "What TLC found"). ValueError below the newest checkpoint;
        FlushFailed; CorruptLog, with nothing changed, where the last frame that stays is corrupt."""
        if last_index >= self.last_index:
            return
        kept = self._maintenance.checkpoints
        if kept and last_index < kept[-1].checkpoint.index:
            raise ValueError(f"frame {last_index + 1} is below the checkpoint at {kept[-1].checkpoint.index}")
        position = self._position_after(last_index)
        whole = self._table.acquire(segment_of(position))
        assert whole is not None
        try:
            truncated = self._truncate_segment(whole, last_index, byte_of(position))
        finally:
            self._table.release(whole)
        self._flush_to(position)
        with self._maintenance.pause():
            try:
                generation = self._maintenance.begin_generation(position)
            except OSError as error:
                raise self._fail(f"state: {error}") from error
            self._tail_cache.clear()
            self._recent.truncate(last_index)
            self._maintenance.forget(
                self._table.replace_from(truncated.sequence, [truncated]), truncated.sequence
            )
        self._generation = generation
        self._flushed = position
        self._follow(truncated.tail)
        self._activate(truncated, truncated.end)
        self._mark()
        self.flushed_index = min(self.flushed_index, last_index)

    def _truncate_segment(self, whole: Segment, last_index: int, end: int) -> Segment:
        """An open segment, truncated to the frames up to `end`, as a segment that can be active."""
        truncated = Segment(
            whole.sequence,
            whole.path,
            whole.size,
            whole.generation,
            whole.first_index,
            whole.first_lsn,
            whole.chain,
        )
        truncated.previous_end, truncated.end = whole.previous_end, end
        ends = whole.frame_ends
        assert ends is not None
        truncated.frame_ends = ends[: last_index + 1 - whole.first_index]
        truncated.tail = self._tail_after(whole, last_index)
        truncated.indexes = {}
        local_ids = list(whole.indexes) if whole.indexes is not None else []
        if whole.indexes is None and whole.summary is not None:
            local_ids = list(whole.summary.local_ids)
        for local_id in local_ids:
            index = self._table.index_of(whole, local_id, load=True)
            left = index.below(end) if index is not None else None
            if left is not None:
                truncated.indexes[local_id] = left
        truncated.fd = self._fs.open(truncated.path)
        return truncated

    def _tail_after(self, segment: Segment, index: int) -> LogTail:
        """The log's tail after this frame: the term, LSN and chain that the next frame must continue."""
        if index < segment.first_index:
            return self._before_first(segment)
        frame = self._recent.get(index) or self._frame_reader.read(index, 0, index)[0]
        assert frame.head is not None
        next_lsn = frame.first_lsn + frame.record_count
        return LogTail(index, frame.term, next_lsn, chain_of(frame.head), frame.time_ms)

    # -- installation -----------------------------------------------------------------------------------

    def begin_install(self) -> Installation:
        """Begins to replace the log by a snapshot of another node; an earlier installation is aborted. May
        run in the thread that adds to it."""
        if self._installation is not None:
            self._installation.abort()
        self._installation = Installation(
            self._fs,
            self.directory,
            self.group_id,
            self.options.segment_bytes,
            self._table,
            self._pool,
            self._switch,
        )
        return self._installation

    def _switch(self, made: PreparedInstallation) -> None:
        """Replaces the log by the installed snapshot."""
        with self._maintenance.pause():
            try:
                generation = self._maintenance.begin_installed(made.first_sequence, made.position)
                self._maintenance.adopt_installed(made.checkpoint)
            except OSError as error:
                raise self._fail(f"installation: {error}") from error
            self._tail_cache.clear()
            self._recent.clear()
            replaced = self._table.replace_from(0, [*made.segments, made.active])
            self._pool.begin_after(made.active.sequence)
            self._maintenance.queue_dead(replaced)
        self._generation = generation
        self._flushed = made.position
        self._follow(made.tail)
        self.flushed_index = self.last_index
        self.checkpoint = made.checkpoint.checkpoint.without_sections()
        self._replay_from = made.position
        self._checkpointed_sequence, self._refused_sequence = made.active.sequence, 0
        self._activate(made.active, SEGMENT_HEADER_BYTES)
        self._mark()
        self._maintenance.wake()
