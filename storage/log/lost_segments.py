"""Sealed segments below the newest checkpoint whose file is lost, cut short, or without a valid header.

Every frame below a checkpoint is committed, and no start replays it. Where such a file is lost, the segments
beside it and its own index file still have its frame range, its chain values and the batches of each
partition. So it stays a segment of the log, without its bytes: its batches
are damage until its frames have come from another member, verified by that chain (`segment_repair`), or its
file is put back. Where the segment before it was freed, its first frame is unknown: then the chain value at
its end verifies its frames. Without its index file its content is unknown: then the log is not opened. Does
not: read segments, or decide which of them is lost (`recovery`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.storage.log.file_system import FileSystem, unless_lost
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, SegmentHeader, frame_size
from lockstep.storage.log.index_file import IndexHeader, SegmentSummary, decode_index_head, index_head_bytes
from lockstep.storage.log.missing_segment import joined_file_of
from lockstep.storage.log.segment_files import SegmentFiles, index_name, segment_name
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.log.segments import Segment
from lockstep.storage.types import CorruptLog

HEAD_BYTES: Final = 4096
"""What is read of an index file at first: mostly its whole head."""


class LostFile(NamedTuple):
    """A sealed segment's file that is lost, or in part."""

    problem: str
    readable_bytes: int
    """How many bytes from its beginning can be read: all of them where only the header is invalid."""


def unknown_end(path: Path, following: Path) -> CorruptLog:
    """The error for a segment whose scanned end nothing confirms: batches behind corruption in it would go
    unnoticed."""
    return CorruptLog(
        f"{path}: where it ends is unknown, as its index file and the header of {following} are lost"
    )


def read_header_bytes(fs: FileSystem, path: Path) -> tuple[bytes, int]:
    """Returns the first bytes of a segment's file, and its size. Raises OSError."""
    fd = fs.open(path)
    try:
        return fs.pread(fd, SEGMENT_HEADER_BYTES, 0), fs.size(fd)
    finally:
        fs.close(fd)


def load_index_head(fs: FileSystem, path: Path) -> tuple[IndexHeader, SegmentSummary] | None:
    """Returns the head and summary of a segment's index file; None where it is missing or unreadable."""
    return unless_lost(partial(_read_index_head, fs, path))


def _read_index_head(fs: FileSystem, path: Path) -> tuple[IndexHeader, SegmentSummary] | None:
    fd = fs.open(path)
    try:
        first = fs.pread(fd, HEAD_BYTES, 0)
        size = min(index_head_bytes(first), fs.size(fd))  # a corrupt head may have any size
        return decode_index_head(first if size <= len(first) else fs.pread(fd, size, 0))
    finally:
        fs.close(fd)


def is_index_of(index: IndexHeader, header: SegmentHeader, following: SegmentHeader | None) -> bool:
    """Returns whether an index file's head is that of a segment with this header, before `following`."""
    if (index.sequence, index.generation) != (header.sequence, header.generation):
        return False
    if header.rewritten and index.end != header.segment_bytes:
        return False
    return following is None or (header.written_end or index.end, index.chain, index.last_index + 1) == (
        following.previous_end,
        following.chain,
        following.first_index,
    )


def find_lost_files(
    names: Iterable[str], files: SegmentFiles, oldest: int, below: int, joins: int
) -> list[str]:
    """Returns the names of the segment files from `oldest` on and below another sequence that are missing
    from the directory while their index files are there, up to the first one without. Args: joins: how many
    are finished."""
    names = set(names)
    present: Collection[int] = {*files.live, *files.covered}
    found = []
    sequence = files.freed.first_missing(oldest, present)
    while sequence < below:
        joined = joined_file_of(names, sequence)
        if joined is not None and joined.first == sequence and joined.last < below and joined.number <= joins:
            found.append(joined.name)
            sequence = joined.last
        elif index_name(sequence) in names:
            found.append(segment_name(sequence))
        else:
            break
        sequence = files.freed.first_missing(sequence + 1, present)
    return found


def frames_between(
    missing: int,
    files: SegmentFiles,
    load_index: Callable[[int], tuple[IndexHeader, SegmentSummary] | None],
    header_of: Callable[[int], SegmentHeader | None],
) -> tuple[int, int]:
    """Returns the first and the last frame that a missing segment held, by those beside it; 0 where that is
    unknown."""
    following = next((s for s in files.live if s > missing), None)
    before = max([s for s in files.live if s < missing], default=0)
    first_index = last_index = 0
    if missing == 1:
        first_index = 1
    elif before and (loaded := load_index(before)) is not None:
        first_index = loaded[0].last_index + 1
    if following is not None:
        with contextlib.suppress(CorruptLog, OSError):
            header = header_of(following)
            last_index = header.first_index - 1 if header is not None else 0
    return first_index, last_index


def tail_before(first_sequence: int, before: Segment | None, seed: int) -> LogTail | None:
    """Returns the end that a segment's first frame follows; None where that is not known, as the segment
    before it was freed."""
    if first_sequence == 1:
        return LogTail(0, 0, 1, seed, 0)
    return before.tail if before is not None and before.sequence == first_sequence - 1 else None


def _lowest_tail_before(index: IndexHeader, summary: SegmentSummary, before: Segment | None) -> LogTail:
    """Returns the lowest index and LSN that a segment's first frame may follow, by the size of its
    frames, the offsets in it, and the last segment that was not freed; the rest of it is unknown."""
    most_frames = max(1, (index.end - SEGMENT_HEADER_BYTES) // frame_size(0, 0))
    most_records = sum(summary.nexts) - sum(summary.firsts)
    tail = before.tail if before is not None else LogTail(0, 0, 1, 0, 0)
    last_index = max(tail.index, index.last_index - most_frames)
    return LogTail(last_index, 0, max(tail.next_lsn, index.next_lsn - most_records), 0, 0)


def segment_without_file(
    path: Path,
    first_sequence: int,
    segment_bytes: int,
    loaded: tuple[IndexHeader, SegmentSummary],
    follows: LogTail | None,
    before: Segment | None,
    following: SegmentHeader | None,
) -> Segment | None:
    """Returns the segment that a lost file held, by its index file and by what is beside it; None where these
    do not fit together.

    Args: follows: `tail_before`, None where that is unknown; before: the segment before it; following: the
    header of the next one, None where that is lost, too.
    """
    index, summary = loaded
    is_known = follows is not None
    if follows is None:
        follows = _lowest_tail_before(index, summary, before)
    if following is not None and (index.chain, index.last_index + 1) != (
        following.chain,
        following.first_index,
    ):
        return None
    if index.last_index <= follows.index or index.next_lsn < follows.next_lsn:
        return None
    written_end = following.previous_end if following is not None else index.end
    is_rewritten = written_end != index.end
    segment = Segment(
        index.sequence,
        path,
        index.end if is_rewritten else max(index.end, segment_bytes),
        index.generation,
        follows.index + 1,
        follows.next_lsn,
        follows.chain,
    )
    segment.first_sequence, segment.has_exact_begin = first_sequence, is_known
    segment.previous_end = (before.written_end or before.end) if before is not None and is_known else 0
    segment.written_end = written_end if is_rewritten else 0
    segment.end, segment.summary = index.end, summary
    segment.tail = LogTail(index.last_index, index.term, index.next_lsn, index.chain, index.time_ms)
    segment.indexes, segment.indexed, segment.frame_ends = None, True, None
    return segment
