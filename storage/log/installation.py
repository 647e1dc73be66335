"""Installs a snapshot of another node: a checkpoint and the frames below it, which replace the whole log.

`add` writes the frames into new segments beyond every file there is, `finish` switches with one save of the
state file: its oldest sequence is then the first new one. Until that save everything new is a leftover that
recovery removes: the segments' headers have generation 0, which never counts at or beyond a generation's
beginning, and the checkpoint's name begins with `incoming-`. After it they lie below the beginning of a
generation, so they count, and what lay before is a leftover. Only the checkpoint's final name follows, from
recovery too.

Frames that the other node has freed leave gaps: a sequence without a file, with a freed file. The log
continues in one more, empty segment, so that its checkpoint ends right where that one's header does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from lockstep.storage.log.batch_flags import max_marks_bytes
from lockstep.storage.log.checkpoint_file import PlacedCheckpoint, incoming_name, write_checkpoint
from lockstep.storage.log.file_system import FileSystem, write_all, write_error
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_segment_header,
    frame_size,
    group_seed,
    position_of,
)
from lockstep.storage.log.freed_segments import freed_file_name
from lockstep.storage.log.segment_files import index_name, segment_name
from lockstep.storage.log.segment_pool import SegmentPool
from lockstep.storage.log.segment_rewrite import SegmentRewrite
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import Checkpoint, Frame, StorageError

SEQUENCE_GAP = 1024
"""The sequences left free for segments that the log rolls to during an installation."""
INSTALLED_GENERATION = 0
"""Lower than every generation that begins later."""


class PreparedInstallation:
    """A complete installation before its switch: durable, and still a leftover for recovery."""

    __slots__ = ("active", "checkpoint", "first_sequence", "position", "segments", "tail")

    def __init__(
        self, first_sequence: int, segments: list[Segment], active: Segment, placed: PlacedCheckpoint
    ) -> None:
        c = placed.checkpoint
        self.first_sequence = first_sequence
        self.segments = segments
        self.active = active
        self.checkpoint = placed
        self.position = placed.position
        self.tail = LogTail(c.index, c.term, c.next_lsn, c.chain, c.time_ms)


class Installation:
    """One installation: `add` as often as needed, then `finish` or `abort`. `add` and `prepare` may run in
    another thread than the log's own, one at a time."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        group_id: int,
        segment_bytes: int,
        table: SegmentTable,
        pool: SegmentPool,
        switch: Callable[[PreparedInstallation], None],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._group_id = group_id
        self._segment_bytes = segment_bytes
        self._table = table
        self._pool = pool
        self._switch = switch
        self._first = self._sequence = pool.next_sequence + SEQUENCE_GAP
        self._tail = LogTail(0, 0, 1, group_seed(group_id), 0)
        self._writing: SegmentRewrite | None = None
        self._pending_end = 0
        """The highest end of the segment being written after the next frames are added."""
        self._segments: list[Segment] = []
        self._gaps: list[int] = []
        self._prepared: PreparedInstallation | None = None
        self._over = False

    @property
    def last_index(self) -> int:
        """The last index of the added frames; 0 before there are any."""
        return self._tail.index

    @property
    def stored_bytes(self) -> int:
        """Bytes written so far."""
        writing = self._writing.end if self._writing is not None else 0
        return sum(segment.end for segment in self._segments) + writing

    # -- adding frames -------------------------------------------------------------------------------------

    def add(self, frames: Sequence[Frame], chain: int | None = None) -> None:
        """Verified frames that follow one another. They follow what was added before (at first: nothing),
        or, with `chain`, the chain value before the first of them, a gap. ValueError where they do not;
        StorageFull, WriteFailed: abort."""
        if self._over or self._prepared is not None:
            raise ValueError("this installation is over")
        if not frames:
            return
        try:
            if frames[0].index != self._tail.index + 1:
                self._begin_after_gap(frames[0], chain)
            start = 0
            for at, frame in enumerate(frames):
                # What was cleaned away takes no room: frames that lost much lie closer together here.
                batches = len(frame.directory)
                size = frame_size(batches, sum(map(len, frame.payloads))) + max_marks_bytes(batches)
                if self._writing is not None and self._pending_end + size > self._segment_bytes:
                    self._store(frames[start:at])
                    self._finish_segment()
                    start = at
                if self._writing is None:
                    self._begin_segment()
                self._pending_end += size
            self._store(frames[start:])
        except OSError as error:
            raise write_error("installation", error) from error

    def _store(self, frames: Sequence[Frame]) -> None:
        if self._writing is not None:
            self._writing.write_back(self._writing.add(frames))
            self._tail = self._writing.tail

    def _begin_after_gap(self, first: Frame, chain: int | None) -> None:
        if chain is None or first.index <= self._tail.index:
            raise ValueError(f"frame {first.index} cannot follow frame {self._tail.index}")
        self._finish_segment()
        self._skip_sequence()
        self._tail = LogTail(first.index - 1, first.term, first.first_lsn, chain, first.time_ms)

    def _skip_sequence(self) -> None:
        """The next segment does not continue the last one: recovery sees a freed segment between them."""
        if self._segments:
            self._gaps.append(self._sequence)
            self._sequence += 1

    def _begin_segment(self) -> None:
        self._writing = SegmentRewrite(
            self._fs,
            self._directory / segment_name(self._sequence),
            self._group_id,
            self._sequence,
            INSTALLED_GENERATION,
            self._tail,
        )
        self._pending_end = self._writing.end

    def _finish_segment(self) -> None:
        writing = self._writing
        if writing is None:
            return
        segment = writing.finish(self._previous_end())
        self._writing = None
        self._tail = segment.tail
        self._segments.append(segment)
        self._sequence += 1
        self._table.write_index(segment)

    def _previous_end(self) -> int:
        """The end of the segment before, for the next segment's header."""
        before = self._segments[-1] if self._segments else None
        return before.end if before is not None and before.sequence == self._sequence - 1 else 0

    # -- the switch --------------------------------------------------------------------------------------

    def prepare(self, checkpoint: Checkpoint) -> None:
        """Make all of it durable, so that `finish` has only to switch. ValueError where the frames added
        are not those up to the checkpoint; StorageFull, WriteFailed: abort."""
        tail = self._tail
        if self._over or self._prepared is not None:
            raise ValueError("this installation is over, or prepared")
        if tail.index > checkpoint.index:
            raise ValueError(f"frame {tail.index} is above the checkpoint at {checkpoint.index}")
        if tail.index == checkpoint.index and (tail.chain, tail.next_lsn, tail.term) != (
            checkpoint.chain,
            checkpoint.next_lsn,
            checkpoint.term,
        ):
            raise ValueError(f"the frames up to {tail.index} are not those of the checkpoint")
        try:
            self._prepare(checkpoint)
        except OSError as error:
            raise write_error("installation", error) from error

    def _prepare(self, checkpoint: Checkpoint) -> None:
        fs, directory = self._fs, self._directory
        self._finish_segment()
        if self._tail.index != checkpoint.index:
            self._skip_sequence()
        active = self._active_segment(checkpoint)
        position = position_of(active.sequence, SEGMENT_HEADER_BYTES)
        name = incoming_name(self._first, checkpoint.index)
        try:
            for sequence in self._gaps:
                fs.close(fs.open(directory / freed_file_name(sequence), create=True))
            fs.fsync_dir(directory)
            write_checkpoint(fs, directory, self._group_id, checkpoint, position, name)
        except OSError:
            fs.close(active.fd)  # its file would keep its room until the process ends
            raise
        placed = PlacedCheckpoint(name, checkpoint, position)
        self._prepared = PreparedInstallation(self._first, self._segments, active, placed)

    def _active_segment(self, checkpoint: Checkpoint) -> Segment:
        """The empty segment in which the log continues."""
        path = self._directory / segment_name(self._sequence)
        self._pool.fill(path)
        segment = Segment(
            self._sequence,
            path,
            self._segment_bytes,
            INSTALLED_GENERATION,
            checkpoint.index + 1,
            checkpoint.next_lsn,
            checkpoint.chain,
        )
        header = SegmentHeader(
            self._group_id,
            INSTALLED_GENERATION,
            segment.sequence,
            segment.first_index,
            segment.first_lsn,
            segment.chain,
            self._previous_end(),
            checkpoint.term,
            checkpoint.time_ms,
            segment.size,
            position_of(segment.sequence, 0),
        )
        segment.fd = self._fs.open(path)
        segment.previous_end, segment.end = header.previous_end, SEGMENT_HEADER_BYTES
        try:
            write_all(self._fs, segment.fd, [encode_segment_header(header)], 0)
            self._fs.fdatasync(segment.fd)
        except OSError:
            self._fs.close(segment.fd)
            raise
        return segment

    def finish(self, checkpoint: Checkpoint) -> None:
        """Switch: the log is this checkpoint, with the frames that were added below it. On the log's own
        thread; nothing may be appended, flushed or checkpointed meanwhile. As `prepare`, which need not
        have been called; FlushFailed."""
        if self._over:
            raise ValueError("this installation is over")
        if self._prepared is None:
            self.prepare(checkpoint)
        prepared = self._prepared
        assert prepared is not None
        if prepared.checkpoint.checkpoint is not checkpoint:
            raise ValueError("another checkpoint than was prepared")
        if self._pool.next_sequence > self._first:
            self.abort()
            raise StorageError(f"the log has grown past segment {self._first}: install again")
        self._over = True
        self._switch(prepared)

    def abort(self) -> None:
        """Remove what was written; after `finish` nothing. What cannot be removed the next open removes."""
        if self._over:
            return
        self._over = True
        if self._writing is not None:
            self._writing.close()
        if self._prepared is not None:
            self._fs.close(self._prepared.active.fd)
            self._remove(self._prepared.checkpoint.name)
        for sequence in range(self._first, self._sequence + 1):
            for name in (segment_name(sequence), index_name(sequence), freed_file_name(sequence)):
                self._remove(name)
        with contextlib.suppress(OSError):
            self._fs.fsync_dir(self._directory)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._fs.unlink(self._directory / name)
