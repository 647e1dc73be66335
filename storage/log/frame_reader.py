"""Frames by index from segment files: for followers that are behind, for snapshots, for chain values.

Every frame is verified again: chain, directory, payloads. A segment's frames are found through
`Segment.frame_ends`; where those are not kept in memory they are made by a scan of the heads and kept for a
few segments. So a damaged batch costs its own frame: what comes before it and behind it can be read, and
members whose copies are damaged in different places repair one another.
A read that meets a truncation, an installation or a rewrite begins again with the present segments; what is
gone then is `FramesUnavailable`, never corruption.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable

from lockstep.storage.log.file_system import FileSystem, is_corruption, is_lost
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, chain_of, decode_frame, frame_bytes
from lockstep.storage.log.marker import MARKER_BYTES, MARKER_MAGIC
from lockstep.storage.log.segment_scan import SegmentScan
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import CorruptLog, Frame, FramesUnavailable

MAX_KEPT_SCANS = 4
"""Segments whose frame ends are kept after a scan: for a few snapshot sends at once, each sequential."""
MARKERS_PER_FRAME = 2
"""An estimate, for the size of a read: a write's marker and an idle one."""


class _SegmentReplaced(Exception):
    """The segment of this sequence was replaced."""


class FrameReader:
    """Reads over a segment table; safe in any thread."""

    __slots__ = ("_fs", "_lock", "_scan", "_scanned", "_table", "on_corrupt")

    def __init__(self, fs: FileSystem, table: SegmentTable, scan: Callable[[Segment], SegmentScan]) -> None:
        self._fs = fs
        self._table = table
        self._scan = scan
        """A scan over all of a segment whose file is open."""
        self._lock = threading.Lock()
        self._scanned: OrderedDict[int, tuple[Segment, array[int]]] = OrderedDict()
        self.on_corrupt: Callable[[int], None] = lambda sequence: None
        """Called in the reader's thread with the sequence of a segment whose frames do not verify."""

    def read(self, first_index: int, max_bytes: int, upto_index: int) -> list[Frame]:
        """Frames from `first_index` to at most `upto_index`, at most `max_bytes` of them but at least one,
        as far as they follow one another and verify. FramesUnavailable; CorruptLog where the first does
        not."""
        frames: list[Frame] = []
        total = 0
        before: Segment | None = None
        while first_index <= upto_index:
            segment = self._segment_of(first_index)
            if segment is None or (before is not None and not _is_next_segment(before, segment, frames[-1])):
                break
            try:
                size = self._read_some(segment, first_index, upto_index, max_bytes - total, frames)
            except _SegmentReplaced:
                if frames:
                    break
                continue
            except (CorruptLog, OSError) as error:
                if is_corruption(error):
                    if frames:
                        break  # a read that begins at the damaged frame raises
                    self.on_corrupt(segment.sequence)
                raise
            if size == 0:
                break
            before = segment
            total += size
            first_index = frames[-1].index + 1
        if not frames and first_index <= upto_index:
            raise FramesUnavailable(f"frame {first_index} is not in the log any more")
        return frames

    def chain_at(self, index: int) -> int | None:
        """The chain value after a frame that a segment holds, or that one begins after; None otherwise."""
        while True:
            for each in self._table:
                if each.first_index == index + 1:
                    return each.chain
            segment = self._segment_of(index)
            if segment is None:
                return None
            try:
                held = self._acquire(segment)
            except _SegmentReplaced:
                continue
            try:
                return self._chain_after(held, index)
            finally:
                self._table.release(held)

    def last_located(self, held: Segment) -> int:
        """The last frame of a held segment whose position is known. Those after it are behind a damaged head,
        or behind lost bytes. CorruptLog where its header is damaged."""
        return held.first_index + len(self._cached_ends(held)) - 1

    def frame_at(self, segment: Segment, position: int) -> Frame:
        """The frame of a segment with a batch at this byte of it, be it that nothing is left of the batch.
        FramesUnavailable where the segment was replaced; CorruptLog."""
        try:
            held = self._acquire(segment)
        except _SegmentReplaced:
            raise FramesUnavailable(f"segment {segment.sequence} was replaced") from None
        try:
            row = bisect_left(self._ends(held), position)
        finally:
            self._table.release(held)
        index = segment.first_index + row
        return self.read(index, 0, index)[0]

    def _segment_of(self, index: int) -> Segment | None:
        """The segment that holds a frame."""
        for segment in reversed(list(self._table)):
            if segment.first_index <= index:
                ends, tail = segment.frame_ends, segment.tail
                count = len(ends) if ends is not None else tail.index + 1 - segment.first_index
                return segment if index < segment.first_index + count else None
        return None

    def _acquire(self, segment: Segment) -> Segment:
        if not self._table.acquire_current(segment):
            raise _SegmentReplaced
        return segment

    def _read_some(self, segment: Segment, first: int, upto: int, budget: int, frames: list[Frame]) -> int:
        """Append what one read of this segment gives; its bytes, 0 where the next frame is over budget."""
        held = self._acquire(segment)
        try:
            row = first - segment.first_index
            ends = self._ends(held, row)
            start = ends[row - 1] if row else SEGMENT_HEADER_BYTES
            last = row + 1
            count = min(len(ends), upto + 1 - segment.first_index)
            while last < count and ends[last] - start <= budget + MARKER_BYTES * MARKERS_PER_FRAME * (
                last - row
            ):
                last += 1
            chain = frames[-1].head if frames else None
            before = chain_of(chain) if chain is not None else self._chain_after(held, first - 1)
            while True:
                try:
                    data = memoryview(self._pread(held, ends[last - 1] - start, start))
                    break
                except OSError as error:
                    if last == row + 1 or not is_lost(error):
                        raise
                    last = row + (last - row) // 2  # a sector costs its own frame
            return self._decode(
                held, data, start, [end - start for end in ends[row:last]], before, budget, frames
            )
        except CorruptLog:
            if self._table.is_current(segment):
                raise
            raise _SegmentReplaced from None
        finally:
            self._table.release(held)

    def _decode(
        self,
        segment: Segment,
        data: memoryview,
        start: int,
        ends: list[int],
        chain: int,
        budget: int,
        frames: list[Frame],
    ) -> int:
        at = total = 0
        for end in ends:
            at = _after_markers(data, at)
            try:
                frame, after = decode_frame(data, at, chain, segment.rewritten)
            except ValueError as error:
                raise CorruptLog(f"{segment.path} byte {start + at}: {error}") from None
            size = frame_bytes(frame)
            if total + size > budget and frames:
                return total
            if after != end:
                raise CorruptLog(f"{segment.path} byte {start + after}: a frame of another length")
            frames.append(frame)
            total += size
            assert frame.head is not None
            chain, at = chain_of(frame.head), after
        return total

    def _chain_after(self, held: Segment, index: int) -> int:
        """The chain value after one of a held segment's frames, or before its first."""
        row = index - held.first_index
        if row < 0:
            return held.chain
        ends = self._ends(held, row - 1)
        at = ends[row - 1] if row > 0 else SEGMENT_HEADER_BYTES
        while (found := self._pread(held, len(MARKER_MAGIC), at)) == MARKER_MAGIC:
            at += MARKER_BYTES
        return chain_of(found)

    def _pread(self, held: Segment, length: int, at: int) -> bytes:
        data = self._fs.pread(held.fd, length, at)
        if len(data) < length:
            raise CorruptLog(f"{held.path} byte {at + len(data)}: the file ends here")
        return data

    def _ends(self, held: Segment, row: int = 0) -> array[int]:
        """Returns the end of each frame of a held segment, up to at least a row; fewer than there are frames
        only where a head is damaged. CorruptLog where that comes before the row."""
        ends = self._cached_ends(held)
        if row >= len(ends):
            last = ends[-1] if ends else SEGMENT_HEADER_BYTES
            raise CorruptLog(f"{held.path} byte {last}: no frame can be found from here on")
        return ends

    def _cached_ends(self, held: Segment) -> array[int]:
        ends = held.frame_ends
        if ends is not None:
            return ends
        with self._lock:
            kept = self._scanned.get(held.sequence)
            if kept is not None and kept[0] is held:
                self._scanned.move_to_end(held.sequence)
                return kept[1]
        scan = self._scan(held)
        scan.heads_only, scan.needs_payloads = True, False
        ends = array("I")
        try:
            for frame in scan.frames():
                ends.append(frame.end)
        except OSError as error:
            if not (held.is_joined and is_lost(error)):
                raise
            return ends  # earlier frames can be read, and need no repair from other members
        with self._lock:
            self._scanned[held.sequence] = held, ends
            while len(self._scanned) > MAX_KEPT_SCANS:
                self._scanned.popitem(last=False)
        return ends


def _is_next_segment(before: Segment, segment: Segment, last: Frame) -> bool:
    """True if `segment` holds the frame after `last`, of `before`; False after a truncation of either."""
    if segment.first_index == last.index + 1:
        return last.head is not None and segment.chain == chain_of(last.head)
    return segment is before


def _after_markers(data: memoryview, at: int) -> int:
    """Returns the start of the next frame. No frame looks like a marker: its fifth byte is its format."""
    while data[at : at + len(MARKER_MAGIC)] == MARKER_MAGIC:
        at += MARKER_BYTES
    return at
