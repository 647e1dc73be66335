"""All damage of a stopped log: a pass over its segments that continues after each damaged position.

Owns: the batches that do not verify, by partition and offsets, and the log entries that do not. After a
corrupt batch the pass continues in the same frame. After a corrupt frame header it resynchronizes at the next
write marker whose frames verify by their batches; the missing offsets are inferred from the frames' batch
directories before and after the gap. Where the rest of a segment is unreadable, its index file names it.
Invariant: nothing is written. Does not: decide where a log ends (`recovery`), or know names of partitions
(`lockstep.stopped_broker`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.checkpoint_file import load_checkpoints
from lockstep.storage.log.file_system import FileSystem, read_whole, unless_lost
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    group_seed,
    payload_problem,
    position_of,
    segment_of,
)
from lockstep.storage.log.index_file import (
    IndexHeader,
    SegmentSummary,
    decode_index_head,
    decode_section,
    index_head_bytes,
    section_of,
)
from lockstep.storage.log.marker import MARKER_BYTES, MARKER_MAGIC
from lockstep.storage.log.missing_segment import with_missing_joined
from lockstep.storage.log.segment_files import SegmentFiles
from lockstep.storage.log.segment_scan import (
    WINDOW_BYTES,
    LogTail,
    ScannedFrame,
    SegmentScan,
    highest_promise,
)
from lockstep.storage.log.startup_cleanup import is_invalidated
from lockstep.storage.log.state_file import LogState
from lockstep.storage.log.wrongly_freed import find_wrongly_freed
from lockstep.storage.types import CONTROL_PARTITION, NO_PARTITION, NOTES_PARTITION

INTERNAL_PARTITIONS: Final = (CONTROL_PARTITION, NOTES_PARTITION)
"""Partitions that no client reads; damage of theirs is damage of the log's entries."""

OnFrame = Callable[[ScannedFrame], None]


class Damage(NamedTuple):
    """Damaged offsets of a partition in a segment; for NO_PARTITION Raft indexes, -1 where none is known."""

    segment: int
    partition: int
    first_offset: int
    last_offset: int
    problem: str


class _TolerantScan(SegmentScan):
    """A scan that takes frames with damaged batches, and can begin again where the chain is not known."""

    __slots__ = ("bad_entries", "end", "path", "resuming")

    path: Path
    end: int
    """Behind this byte a frame that does not verify is a torn write."""
    resuming: bool
    """The next frame need not follow the last one; it counts only if all its batches verify."""
    bad_entries: list[tuple[int, ...]]
    """Of the last frame, the directory entries whose batches do not verify."""

    def _continues(self, chain: int, head: memoryview, crc: int) -> bool:
        return self.resuming or super()._continues(chain, head, crc)

    def _follows(self, tail: LogTail, index: int, lsn: int, term: int) -> bool:
        if self.resuming:
            return index > tail.index and lsn >= tail.next_lsn and term >= tail.term
        return super()._follows(tail, index, lsn, term)

    def _payloads_verify(self, frame: ScannedFrame, payload: int) -> bool:
        self.bad_entries = []
        if super()._payloads_verify(frame, payload):
            self.resuming = False
            return True
        sizes = sum(0 if each[7] & ENTRY_REMOVED else each[3] for each in frame.entries)
        if self.resuming or sizes != payload or frame.end > self.end:
            return False
        at = frame.payload_at
        for entry in frame.entries:
            end = at if entry[7] & ENTRY_REMOVED else at + entry[3]
            if payload_problem(frame.view, at, end, [entry], self.rewritten):
                self.bad_entries.append(entry)
            at = end
        self.reason = ""
        return True


class _Resumed(NamedTuple):
    """The frames of a segment behind what is damaged."""

    first: ScannedFrame
    later: Iterator[ScannedFrame]


class DamageSearch:
    """One pass over one log. After `run`: `damage` in the order of the log."""

    def __init__(
        self, fs: FileSystem, directory: Path, group_id: int, state: LogState, ends: dict[int, int]
    ) -> None:
        """`ends`: where each segment ends, by sequence, where recovery has found that out; else empty."""
        self._fs = fs
        self._directory = directory
        self._seed = group_seed(group_id)
        self._group_id = group_id
        self._state = state
        self._ends = ends
        self._names = frozenset(fs.list_dir(directory))
        names, oldest = with_missing_joined(sorted(self._names)), state.oldest_sequence
        is_void = cache(partial(is_invalidated, fs, directory))
        checkpoints = load_checkpoints(fs, directory, names, group_id, oldest)[0]
        below = segment_of(checkpoints[0].position) if checkpoints else None
        wrong = find_wrongly_freed(fs, directory, group_id, names, oldest, state.joins, is_void, below)
        self._files = SegmentFiles(names, oldest, state.joins, is_void, wrong)
        self.damage: list[Damage] = []
        self.segments = 0
        """Segments whose header verifies."""
        self._nexts: dict[int, tuple[int, int]] = {}
        """By partition: its next offset, and how many gaps there had been when it was last seen."""
        self._last_index = -1
        """The Raft index up to which everything was found or reported; -1 where that is not known."""
        self._gaps = 0
        self._gap_problem = ""
        self._gap_segment = 0

    def run(self, on_frame: OnFrame) -> None:
        """Look through all segments; `on_frame` is called for each frame, with damaged batches or without."""
        files = self._files
        headers = {s: self._header(s) for s in files.live}
        known = [s for s, header in headers.items() if header is not None]
        self.segments = len(known)
        tail: LogTail | None = None
        for sequence in range(self._state.oldest_sequence, max(known, default=0) + 1):
            if sequence in files.freed:
                tail, self._last_index = None, -1
                self._nexts.clear()
            elif sequence in headers or sequence not in files.covered:
                tail = self._segment(sequence, headers, tail, on_frame)

    def _header(self, sequence: int) -> SegmentHeader | None:
        """The header of a segment in use; None where it is damaged, or the file is no segment yet."""
        data = unless_lost(partial(self._pread, sequence, SEGMENT_HEADER_BYTES, 0))
        found = decode_segment_header(data) if data is not None else None
        if found is None:
            return None
        header = found[1]
        if position_of(sequence, 0) >= self._state.generation_start:
            counts = header.generation == self._state.generation
        else:
            counts = header.generation <= self._state.generation
        return header if counts and (header.group_id, header.sequence) == (self._group_id, sequence) else None

    def _pread(self, sequence: int, length: int, at: int) -> bytes:
        fd = self._fs.open(self._directory / self._files.name(sequence))
        try:
            return self._fs.pread(fd, length, at)
        finally:
            self._fs.close(fd)

    def _segment(
        self,
        sequence: int,
        headers: dict[int, SegmentHeader | None],
        before: LogTail | None,
        on_frame: OnFrame,
    ) -> LogTail | None:
        """Look through one segment; what the next one follows, None where that is not known."""
        path = self._directory / self._files.name(sequence)
        header, following = headers.get(sequence), headers.get(self._files.segment_from(sequence + 1))
        if header is None:
            is_there = sequence in headers and path.name in self._names
            what = "the segment header does not verify" if is_there else "the segment is missing"
            self._lose(sequence, following, SEGMENT_HEADER_BYTES, f"{path} byte 0: {what}")
            return None
        if before is not None and (before.chain, before.index + 1) != (header.chain, header.first_index):
            problem = f"{path} byte 0: does not continue the segment before it"
            self._gap(sequence, problem)
            self._add(sequence, NO_PARTITION, header.first_index, header.first_index, problem)
        tail = LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms)
        fd = self._fs.open(path)
        try:
            scan = self._scan(path, fd, header, tail)
            end = self._end(sequence, header, following)
            if end is None:
                end = self._promised_end(fd, scan)
            scan.end = end
            frames = scan.frames()
            while True:
                for frame in frames:
                    self._take(scan, frame)
                    on_frame(frame)
                if scan.offset >= end:
                    self._last_index = scan.tail.index
                    return scan.tail
                problem, self._last_index = f"{path} byte {scan.offset}: {scan.reason}", scan.tail.index
                self._gap(sequence, problem)
                start_byte = scan.offset
                resumed = self._resume(fd, scan, end)
                if resumed is None:
                    self._lose(sequence, following, start_byte, problem)
                    return None
                frames = itertools.chain((resumed.first,), resumed.later)
                first = self._last_index + 1
                self._add(sequence, NO_PARTITION, first, max(first, resumed.first.index - 1), problem)
        finally:
            self._fs.close(fd)

    def _scan(self, path: Path, fd: int, header: SegmentHeader, tail: LogTail) -> _TolerantScan:
        scan = _TolerantScan(
            lambda length, offset: self._fs.pread(fd, length, offset),
            min(header.segment_bytes, self._fs.size(fd)),
            header.sequence,
            self._seed,
            tail,
            SEGMENT_HEADER_BYTES,
            self._state.generation,
            self._state.generation_start,
            header.rewritten,
        )
        scan.last_generation, scan.path = header.generation, path
        scan.end, scan.resuming, scan.bad_entries = 0, False, []
        return scan

    def _end(self, sequence: int, header: SegmentHeader, following: SegmentHeader | None) -> int | None:
        if sequence in self._ends:
            return self._ends[sequence]
        if header.rewritten:
            return header.segment_bytes
        return following.previous_end if following is not None else None

    def _promised_end(self, fd: int, scan: _TolerantScan) -> int:
        """The byte up to which the last segment was flushed, according to markers and the state file."""
        promise, _ = highest_promise(
            lambda length, offset: self._fs.pread(fd, length, offset),
            self._fs.size(fd),
            scan.sequence,
            self._seed,
            self._state.generation,
            scan.offset,
        )
        promised = self._state.generation_start
        if segment_of(promised) <= scan.sequence:
            promise = max(promise, promised)
        return promise - position_of(scan.sequence, 0)

    def _resume(self, fd: int, scan: _TolerantScan, end: int) -> _Resumed | None:
        """The next write whose first frame verifies by its batches; None where there is none."""
        at, generation = scan.offset, scan.last_generation
        for start_byte in self._markers(fd, at, min(end, self._fs.size(fd))):
            scan.offset, scan.last_generation, scan.resuming = start_byte, generation, True
            frames = scan.frames()
            frame = next(frames, None)
            if frame is not None:
                return _Resumed(frame, frames)
        scan.offset, scan.resuming = at, False
        return None

    def _markers(self, fd: int, at: int, end: int) -> Iterator[int]:
        """Yields positions that look like a marker, from a byte on."""
        while at + MARKER_BYTES <= end:
            data = self._fs.pread(fd, min(WINDOW_BYTES, end - at), at)
            hit = data.find(MARKER_MAGIC)
            while hit >= 0:
                yield at + hit
                hit = data.find(MARKER_MAGIC, hit + 1)
            if len(data) < len(MARKER_MAGIC):
                return
            at += len(data) - len(MARKER_MAGIC) + 1

    # -- what is damaged ---------------------------------------------------------------------------------

    def _take(self, scan: _TolerantScan, frame: ScannedFrame) -> None:
        """Adds a frame's batches that do not verify, and the offsets that are missing in a gap before it."""
        for local_id, base, count, *_ in frame.entries:
            if local_id not in INTERNAL_PARTITIONS:
                next_offset, gaps = self._nexts.get(local_id, (base, self._gaps))
                if base > next_offset and gaps < self._gaps:
                    self._add(self._gap_segment, local_id, next_offset, base - 1, self._gap_problem)
                self._nexts[local_id] = base + count, self._gaps
        for local_id, base, count, *_ in scan.bad_entries:
            problem = f"{scan.path} byte {frame.offset}: a batch does not match its directory entry"
            if local_id in INTERNAL_PARTITIONS:
                self._add(scan.sequence, NO_PARTITION, frame.index, frame.index, problem)
            else:
                self._add(scan.sequence, local_id, base, base + count - 1, problem)

    def _gap(self, sequence: int, problem: str) -> None:
        self._gaps += 1
        self._gap_segment, self._gap_problem = sequence, problem

    def _lose(
        self,
        sequence: int,
        following: SegmentHeader | None,
        start_byte: int,
        problem: str,
    ) -> None:
        """Note that a segment has nothing more that can be read, from byte `start_byte` on."""
        self._gap(sequence, problem)
        loaded = unless_lost(partial(self._index, sequence))
        last_index = -1
        if following is not None:
            last_index = following.first_index - 1
        elif loaded is not None:
            last_index = loaded[0].last_index
        first_index = last_index
        if self._last_index >= 0 or self._files.first(sequence) == 1:
            first_index = max(self._last_index, 0) + 1
        self._add(sequence, NO_PARTITION, first_index, max(first_index, last_index), problem)
        self._last_index = last_index
        if loaded is not None:
            for local_id, first, end in _rows_from(loaded[1], loaded[2], start_byte):
                if local_id not in INTERNAL_PARTITIONS:
                    self._add(
                        sequence, local_id, max(first, self._nexts.get(local_id, (0, 0))[0]), end - 1, problem
                    )
                    self._nexts[local_id] = end, self._gaps

    def _index(self, sequence: int) -> tuple[IndexHeader, SegmentSummary, bytes] | None:
        data = read_whole(self._fs, self._directory / self._files.index_name(sequence))
        if data is None:
            return None
        head = decode_index_head(data[: index_head_bytes(data[:4096])])
        return (*head, data) if head is not None and head[0].sequence == sequence else None

    def _add(self, sequence: int, partition: int, first: int, last: int, problem: str) -> None:
        """Add damage; what continues from the one before it extends that."""
        before = self.damage[-1] if self.damage else None
        extends = (
            before is not None
            and (before.segment, before.partition) == (sequence, partition)
            and before.first_offset <= first <= before.last_offset + 1
        )
        if before is not None and extends:
            self.damage[-1] = before._replace(last_offset=max(last, before.last_offset))
            return
        if first <= last:
            self.damage.append(Damage(sequence, partition, first, last, problem))


def _rows_from(summary: SegmentSummary, data: bytes, start_byte: int) -> Iterator[tuple[int, int, int]]:
    """(partition, first, next offset) of what lies at or behind a byte of a segment, by its index file."""
    for row, part in enumerate(summary.partitions()):
        at, size = section_of(summary, row)
        index = decode_section(data[at : at + size], summary, row)
        first = part.first_offset
        if index is not None:
            batches = index.by_batch()
            behind = [
                base for base, at in zip(batches.bases, batches.positions, strict=True) if at >= start_byte
            ]
            if not behind:
                continue
            first = behind[0]
        if part.first_offset <= part.last_offset and part.total_bytes:
            yield part.local_id, first, part.last_offset + 1
