"""The writer of a data log: appends, flushes and rolls.

One `append` is one marker and its frames in one `pwritev`; one `flush` is one `fdatasync`. State that
readers in other threads use is changed in an order that is safe for them: bytes first, index after.
`DataLog` is this plus everything else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from crc32c import crc32c

from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.batch_index import BatchIndex, forget_partition
from lockstep.storage.log.batch_runs import runs_of
from lockstep.storage.log.file_system import PWRITEV_MAX_BUFFERS, FileSystem, is_full, write_all
from lockstep.storage.log.format import (
    FRAME_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    chain_of,
    encode_frame_head,
    encode_segment_header,
    frame_bytes,
    group_seed,
    position_of,
)
from lockstep.storage.log.index_file import SegmentSummary
from lockstep.storage.log.marker import MARKER_BYTES, encode_marker
from lockstep.storage.log.options import LogOptions, write_bytes
from lockstep.storage.log.recent_frames import RecentFrames
from lockstep.storage.log.segment_pool import SegmentPool
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.log.tail_cache import SharedBuffer, TailCache
from lockstep.storage.types import ENTRY_BYTES, LAST_OFFSET, Buffer, FlushFailed, Frame, StorageFull

PAGE_BYTES = 4096
"""Of the page cache, or a part of its pages."""
_ZEROS = bytes(PAGE_BYTES)


class LogWriter:
    """Appends to the active segment, flushes it, rolls to the next."""

    _active: Segment
    _offset: int
    _segment_position: int

    def __init__(
        self,
        fs: FileSystem,
        group_id: int,
        options: LogOptions,
        table: SegmentTable,
        pool: SegmentPool,
        maintenance: BackgroundMaintenance,
        tail: LogTail,
    ) -> None:
        self._fs = fs
        self.group_id = group_id
        self.options = options
        self._seed = group_seed(group_id)
        self._table = table
        self._pool = pool
        self._maintenance = maintenance
        self._tail_cache = TailCache(options.tail_cache_bytes)
        self._recent = RecentFrames(options.recent_frames_bytes, options.needed_frames_bytes)
        self._segment_room = options.segment_bytes - SEGMENT_HEADER_BYTES
        self._always_fits = (self._segment_room - options.max_frame_bytes) // 2
        """Payload that a ready segment takes, wherever frames end and however small the batches."""
        self.appended_bytes = 0
        """Markers and frames written since open."""
        self._failed = ""
        self._sync = threading.Lock()
        """Held from a sync of the active segment until it is known what came of it: the system reports a
        write-back error once per open file, and so to one of two syncs side by side."""
        self._idle_written = True
        self._generation = maintenance.state.generation
        self._flushed = maintenance.state.generation_start
        self.flushed_index = tail.index
        self._follow(tail)

    def _follow(self, tail: LogTail) -> None:
        """Sets the end that the next frame must follow."""
        self.last_index = tail.index
        self.last_term = tail.term
        self.next_lsn = tail.next_lsn
        self.chain = tail.chain
        self.last_time_ms = tail.time_ms

    # -- appending --------------------------------------------------------------------------------------

    @property
    def max_frame_bytes(self) -> int:
        return self.options.max_frame_bytes

    def has_space_for(
        self, payload_bytes: int, batch_count: int | None = None, *, reserved: bool = False
    ) -> bool:
        """Returns whether all this payload (accepted and not yet appended) fits. Once True it stays
        so until an append. Without `batch_count` the batches may be as small as they get. `reserved` may
        use the reserve: no-ops, deletes, log starts."""
        ready = self._pool.ready_count
        if ready and payload_bytes <= self._always_fits:
            return True
        need = write_bytes(payload_bytes, batch_count)
        keep = 0 if reserved else self.options.reserve_bytes
        while True:
            rest = self._limit - self._offset
            if not ready and need + keep <= rest:
                return True
            # Where a segment ends a frame may leave nearly its own length unused.
            unused = min(self.options.max_frame_bytes, need)
            if ready and need <= rest + ready * (self._segment_room - unused):
                return True
            if not self._pool.more_than(ready):
                return False
            ready = self._pool.ready_count

    def append(self, frames: Sequence[Frame]) -> None:
        """Write the frames, not yet flushed. StorageFull, WriteFailed before anything is written;
        FlushFailed; ValueError for a frame that does not follow the log."""
        if self._failed:
            raise FlushFailed(self._failed)
        if not frames:
            return
        size = _write_size(frames)
        if self._offset + size <= self._limit:
            self._write(frames, size)
        else:
            self._append_over_a_roll(frames)

    def _append_over_a_roll(self, frames: Sequence[Frame]) -> None:
        """Fill the segment, roll, continue; the segments it takes are ready before the first write."""
        plan: list[list[Frame]] = [[]]
        limits: list[int] = []
        offset, limit = self._offset + MARKER_BYTES, self._limit
        for frame in frames:
            size = frame_bytes(frame)
            if offset + size > limit:
                plan.append([])
                offset = SEGMENT_HEADER_BYTES + MARKER_BYTES
                # Another member's segments may be larger than ours, and so its frames.
                limit = max(self.options.segment_bytes, offset + size)
                limits.append(limit)
            plan[-1].append(frame)
            offset += size
        while (ready := self._pool.ready_count) < len(limits):
            if not self._pool.more_than(ready):
                raise self._pool.no_segment()
        for position, limit in enumerate(limits):
            if not self._pool.enlarge(position, limit):
                raise self._pool.no_segment()
        if plan[0]:
            self._write(plan[0], _write_size(plan[0]))
        for part in plan[1:]:
            self._roll()
            self._write(part, _write_size(part))

    def _write(self, frames: Sequence[Frame], size: int) -> None:
        """Writes frames that fit into the segment, with their marker `size` bytes."""
        offset = self._offset
        chain, index, lsn, term = self.chain, self.last_index, self.next_lsn, self.last_term
        buffers: list[Buffer] = [b""]
        for frame in frames:
            if frame.index != index + 1 or frame.first_lsn != lsn or frame.term < term:
                raise ValueError(
                    f"frame {frame.index} (term {frame.term}, LSN {frame.first_lsn}) cannot follow "
                    f"frame {index} (term {term}, next LSN {lsn})"
                )
            index, term = frame.index, frame.term
            lsn += frame.record_count
            known = frame.head
            if known is None:
                head, chain = encode_frame_head(frame, chain)
                frame.head = head
            elif crc32c(known[4:], chain) == chain_of(known):
                head, chain = known, chain_of(known)
            else:
                raise ValueError(f"the head of frame {index} does not continue the chain")
            buffers.append(head)
            buffers.extend(frame.buffers)
        position = self._segment_position | offset
        marker = encode_marker(self._seed, self._generation, position, self._flushed, size - MARKER_BYTES)
        if len(frames) == 1:
            buffers[0:2] = [marker + head]
        else:
            buffers[0] = marker
        self._write_out(buffers, size, offset)
        self._note(frames, offset + MARKER_BYTES)
        self._offset = offset + size
        self.appended_bytes += size
        self.chain, self.last_index, self.next_lsn, self.last_term = chain, index, lsn, term
        self.last_time_ms = frames[-1].time_ms
        self._idle_written = False
        self._written = (self._fd, index, position + size)

    def _write_out(self, buffers: list[Buffer], size: int, offset: int) -> None:
        """Write `size` bytes, and zeros up to the end of the page: a page of a recycled file that is written
        in part, and has left the page cache, would be read from the disk first."""
        end = offset + size
        rest = min(-end % PAGE_BYTES, self._limit - end)
        if rest > 0:
            buffers.append(_ZEROS[:rest])
            size += rest
        if len(buffers) > PWRITEV_MAX_BUFFERS:
            buffers = [b"".join(buffers)]
        try:
            written = self._fs.pwritev(self._fd, buffers, offset)
            if written != size:
                if sum(map(len, buffers)) != size:
                    raise ValueError("a frame's payloads and directory disagree about their lengths")
                write_all(self._fs, self._fd, [b"".join(buffers)[written:]], offset + written)
        except OSError as error:
            if is_full(error):
                raise StorageFull(f"{self._active.path}: {error}") from error
            raise self._fail(f"{self._active.path}: write failed: {error}") from error

    def _note(self, frames: Sequence[Frame], at: int) -> None:
        """Index and cache what has just been written from byte `at` on."""
        indexes, cache = self._indexes, self._tail_cache
        recent = self._recent if self._recent.limit_bytes else None
        shared: SharedBuffer | None = None
        for frame in frames:
            entries, buffer = frame.entries, frame.buffer
            if buffer is None:
                payloads, shared = frame.payloads, None
            elif shared is None or shared.data is not buffer:
                shared = SharedBuffer(buffer)
            start = at
            at += FRAME_BYTES + ENTRY_BYTES * len(entries)
            row, begin = 0, frame.body_at
            for local_id, base, next_offset, count, length, leader_epoch, newest, _ in runs_of(frame):
                index = indexes.get(local_id)
                if index is None:
                    index = indexes[local_id] = BatchIndex()
                    self._table.begin(local_id, base, self._active.sequence)
                if count == 1:
                    index.add(base, next_offset - base, at, length, newest, leader_epoch)
                else:
                    taken = payloads[row : row + count] if buffer is None else buffer[begin : begin + length]
                    index.add_run(
                        entries[row : row + count], next_offset, at, length, leader_epoch, newest, taken
                    )
                if shared is not None:
                    cache.add_shared(local_id, base, next_offset, shared, begin, length)
                elif count == 1:
                    cache.add(local_id, base, payloads[row], length)
                else:
                    cache.add_run(local_id, base, next_offset, payloads[row : row + count], length)
                row += count
                begin += length
                at += length
            self._frame_ends.append(at)
            frame.forget_entries()
            if recent is not None:
                recent.add(frame, at - start)

    def keep_recent_frames(self, keep: bool) -> None:
        """Sets whether the newest frames stay in memory for `frames`: without followers they are not worth
        it."""
        self._recent.limit_to(self.options.recent_frames_bytes if keep else 0)

    @property
    def recent_index(self) -> int:
        """The lowest entry that `frames` has; 0 where it has none."""
        return self._recent.first_index

    def keep_from(self, index: int | None) -> None:
        """Keeps in memory what follows this entry, for followers that miss it; None: no follower does."""
        self._recent.need(index)

    def forget_closed(self, is_closed: Callable[[int], bool]) -> None:
        """Drop what is held in memory for each of the partitions that are closed. On the log's own thread."""
        for local_id in self._table.forget_closed(is_closed):
            self.forget_partition(local_id)

    def forget_partition(self, local_id: int) -> None:
        """Drop what is held in memory for a partition that is closed. On the log's own thread."""
        self._table.forget_partition(local_id)
        forget_partition(self._indexes, local_id)
        self._tail_cache.forget_below(local_id, LAST_OFFSET)

    def flush(self) -> None:
        """Make everything appended durable. With `flush` off it only moves `flushed_index`.
        FlushFailed: what is on the disk is unknown and the process must stop."""
        if not self.options.flush:
            if self._failed:
                raise FlushFailed(self._failed)
            self.flushed_index = max(self.flushed_index, self._written[1])
            return
        with self._sync:
            if self._failed:
                raise FlushFailed(self._failed)
            fd, index, position = self._written
            try:
                self._fs.fdatasync(fd)
            except OSError as error:
                raise self._fail(f"{self._active.path}: flush failed: {error}") from error
            self._flushed = max(self._flushed, position)
            self.flushed_index = max(self.flushed_index, index)

    def _fail(self, what: str) -> FlushFailed:
        self._failed = what
        return FlushFailed(what)

    def idle(self) -> None:
        """Nothing follows for now: write down that all is flushed, so that corruption at the end is seen as
        corruption."""
        position = self._segment_position | self._offset
        if self._idle_written or self._flushed != position or self._failed or not self.options.flush:
            return
        self._mark()

    def _mark(self) -> None:
        """A marker without frames. Also the first of a generation, so that a write truncated in
        the middle ends there for every later scan. Where it does not fit, no stale frame does either."""
        position = self._segment_position | self._offset
        if self._offset + MARKER_BYTES > self._limit:
            return
        marker = encode_marker(self._seed, self._generation, position, self._flushed, 0)
        self._write_out([marker], MARKER_BYTES, self._offset)
        self._offset += MARKER_BYTES
        self._idle_written = True
        self._written = (self._fd, self.last_index, position + MARKER_BYTES)

    # -- segments ---------------------------------------------------------------------------------------

    def seal(self) -> bool:
        """Go on in another segment, so that what is in this one can be cleaned; not while a flush is under
        way. False, and nothing done, where this one is empty or the spare ones are not all ready: a full
        disk needs what is left here. FlushFailed."""
        if self._failed:
            raise FlushFailed(self._failed)
        if not self._frame_ends or self._pool.failed or self._pool.yielding:
            return False
        if self._pool.wants_more():
            self._maintenance.wake()
            return False
        self._roll()
        return True

    def _activate(self, segment: Segment, offset: int) -> None:
        assert segment.indexes is not None and segment.frame_ends is not None
        self._active = segment
        self._fd = segment.fd
        self._offset = offset
        self._limit = segment.size
        self._indexes = segment.indexes
        self._frame_ends = segment.frame_ends
        self._segment_position = position_of(segment.sequence, 0)
        self._written = (segment.fd, self.last_index, position_of(segment.sequence, offset))

    def _roll(self) -> None:
        """Seal the active segment and begin the next, which is ready."""
        old = self._active
        if self.options.flush:
            self.flush()
        old.end = self._offset
        old.tail = LogTail(self.last_index, self.last_term, self.next_lsn, self.chain, self.last_time_ms)
        old.summary = SegmentSummary.of(self._indexes)
        self._begin_segment(old.end)
        self._table.note_sealed(old)
        self._maintenance.add_unindexed(old)
        self._maintenance.wake()

    def _begin_segment(self, previous_end: int) -> None:
        ready = self._pool.take()
        if ready is None:
            raise self._pool.no_segment()
        header = SegmentHeader(
            self.group_id,
            self._generation,
            ready.sequence,
            self.last_index + 1,
            self.next_lsn,
            self.chain,
            previous_end,
            self.last_term,
            self.last_time_ms,
            ready.size,
            self._flushed,
        )
        segment = Segment(
            ready.sequence,
            ready.path,
            ready.size,
            self._generation,
            self.last_index + 1,
            self.next_lsn,
            self.chain,
        )
        segment.previous_end = header.previous_end
        segment.fd = self._fs.open(ready.path)
        try:
            write_all(self._fs, segment.fd, [encode_segment_header(header)], 0)
            if self.options.flush:
                self._fs.fdatasync(segment.fd)
        except OSError as error:
            self._fs.close(segment.fd)
            raise self._fail(f"{ready.path}: {error}") from error
        if self.options.flush:  # before a checkpoint's thread can see the segment, and would flush it again
            self._flushed = position_of(segment.sequence, SEGMENT_HEADER_BYTES)
        self._table.add(segment)
        self._activate(segment, SEGMENT_HEADER_BYTES)


def _write_size(frames: Sequence[Frame]) -> int:
    """The bytes of frames in a segment, with the marker before them."""
    size = MARKER_BYTES
    for frame in frames:
        size += frame_bytes(frame)
    return size
