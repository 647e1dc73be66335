"""A sealed segment written as a whole: installed from another node, repaired from one, or cleaned.

Its format is `SEGMENT_REWRITTEN_FORMAT`: one marker, then the frames. A frame is its head, its marks (which
of its batches were removed or shortened: `batch_flags`) and the payloads that are left. Header and marker are
written last: until `finish` the file has no valid header. The caller chooses its generation; such a segment
gets no appends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from crc32c import crc32c

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_index import BatchIndex, add_to_index
from lockstep.storage.log.file_system import FileSystem, write_all
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    chain_of,
    encode_segment_header,
    frame_buffers,
    group_seed,
    position_of,
)
from lockstep.storage.log.index_file import SegmentSummary
from lockstep.storage.log.marker import MARKER_BYTES, encode_marker
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment
from lockstep.storage.types import Buffer, Frame

OVERHEAD_BYTES: Final = SEGMENT_HEADER_BYTES + MARKER_BYTES
"""The bytes of each file beside its frames, which begin there."""
MARKS_BYTES: Final = 5
BATCHES_PER_MARKS_BYTE: Final = 8 * 40
"""An appended frame's marks take at most `MARKS_BYTES`, and a byte for each so many bytes of its head."""


def head_bytes(segment: Segment) -> int:
    """The bytes of its frames that are no payload: headers, directories and marks."""
    summary = segment.summary
    return segment.end - OVERHEAD_BYTES - (sum(summary.totals) if summary is not None else 0)


def max_frames_bytes(segment: Segment) -> int:
    """The most that a segment's frames take in another file."""
    size = segment.end - OVERHEAD_BYTES
    if segment.rewritten:
        return size
    frames = segment.tail.index + 1 - segment.first_index
    return size + MARKS_BYTES * frames + head_bytes(segment) // BATCHES_PER_MARKS_BYTE


class SegmentRewrite:
    """One such segment, being written to `path`; `before` is the log's tail before its first frame.

    Args: is_closed: partitions whose batches get no row in the index once they are cleaned away."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        group_id: int,
        sequence: int,
        generation: int,
        before: LogTail,
        is_closed: Callable[[int], bool] = lambda local_id: False,
    ) -> None:
        self._fs = fs
        self.path = path
        self._group_id = group_id
        self.sequence = sequence
        self._generation = generation
        self._before = before
        self._is_closed = is_closed
        self.tail = before.copy()
        self.end = OVERHEAD_BYTES
        self._indexes: dict[int, BatchIndex] = {}
        self._fd = fs.open(path, create=True)

    def add(self, frames: Sequence[Frame]) -> int:
        """Writes verified frames; returns the bytes. Raises ValueError where one does not follow, OSError."""
        buffers: list[Buffer] = []
        start = self.end
        for frame in frames:
            self._check(frame)
            parts = frame_buffers(frame, marked=True)
            self._index(frame, self.end + len(parts[0]) + len(parts[1]))
            buffers.extend(parts)
            self.end += sum(map(len, parts))
        write_all(self._fs, self._fd, buffers, start)
        return self.end - start

    def write_back(self, count: int) -> None:
        """Writes the last `count` bytes back, and waits: a large flush at the end would delay others."""
        self._fs.write_back(self._fd, self.end - count, count)

    def _check(self, frame: Frame) -> None:
        tail, head = self.tail, frame.head
        if (frame.index, frame.first_lsn, frame.term >= tail.term) != (tail.index + 1, tail.next_lsn, True):
            raise ValueError(f"frame {frame.index} cannot follow frame {tail.index}")
        if head is None or crc32c(head[4:], tail.chain) != chain_of(head):
            raise ValueError(f"the head of frame {frame.index} does not continue the chain")
        tail.index, tail.term, tail.time_ms = frame.index, frame.term, frame.time_ms
        tail.next_lsn += frame.record_count
        tail.chain = chain_of(head)

    def _index(self, frame: Frame, at: int) -> None:
        """Adds the frame's batches to the index; their payloads begin at `at`."""
        payloads = frame.payloads
        for entry, payload in zip(frame.directory, payloads, strict=True):
            if len(payload) != (0 if entry.flags & ENTRY_REMOVED else entry.length):
                raise ValueError(f"frame {frame.index}: payloads and directory disagree about their lengths")
        add_to_index(self._indexes, frame.entries, at, payloads, self._is_closed)

    def finish(self, previous_end: int, written_end: int = 0) -> Segment:
        """Completes and flushes the file; returns the sealed segment. `written_end`: its former end."""
        before = self._before
        position = position_of(self.sequence, SEGMENT_HEADER_BYTES)
        header = SegmentHeader(
            self._group_id,
            self._generation,
            self.sequence,
            before.index + 1,
            before.next_lsn,
            before.chain,
            previous_end,
            before.term,
            before.time_ms,
            self.end,
            position,
            written_end or self.end,
        )
        seed = group_seed(self._group_id)
        marker = encode_marker(seed, self._generation, position, position, self.end - OVERHEAD_BYTES)
        write_all(self._fs, self._fd, [encode_segment_header(header), marker], 0)
        self._fs.fdatasync(self._fd)
        self.close()
        segment = Segment(
            self.sequence,
            self.path,
            self.end,
            self._generation,
            before.index + 1,
            before.next_lsn,
            before.chain,
        )
        segment.previous_end, segment.written_end = previous_end, header.written_end
        segment.end, segment.tail = self.end, self.tail
        segment.indexes, segment.summary = self._indexes, SegmentSummary.of(self._indexes)
        segment.frame_ends = None
        return segment

    def close(self) -> None:
        """Closes the file; the caller removes it where it was not finished."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
