"""The log's own state, reconstructed from its segments where both slots of the state file are corrupt.

Lost with them are the vote, the list of truncations and that of freed segments. So the new state is
taken from the segments: every generation counts, and truncated frames may return. That is safe only for a
member that never voted: `Recovery` gives it a new incarnation. Returned frames are entries of some leader, so
Raft keeps or truncates them as any follower's.

Before the new state is saved, an empty file `salvaged` records that records may be missing at the log's
beginning. It is removed once these are recorded (`storage/missing_records.py`): no start before that can
miss them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from lockstep.storage.log.checkpoint_file import load_checkpoints
from lockstep.storage.log.file_system import FileSystem, is_lost
from lockstep.storage.log.format import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_REWRITTEN_FORMAT,
    decode_segment_header,
    group_seed,
    position_of,
    segment_of,
)
from lockstep.storage.log.freed_segments import FreedSequences
from lockstep.storage.log.marker import MARKER_MAGIC, decode_marker
from lockstep.storage.log.missing_segment import with_missing_joined
from lockstep.storage.log.segment_files import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SegmentFiles,
    joined_of,
    sequences_of,
)
from lockstep.storage.log.segment_scan import WINDOW_BYTES, LogTail, SegmentScan
from lockstep.storage.log.startup_cleanup import is_invalidated
from lockstep.storage.log.state_file import LogState
from lockstep.storage.types import CorruptLog, HardState

SALVAGED_NAME: Final = "salvaged"
_NO_POSITION = position_of((1 << 32) - 1, 0)
"""The beginning of a generation above every position: everything below it counts."""


def salvaged_state(fs: FileSystem, directory: Path, group_id: int, names: list[str]) -> LogState:
    """Returns a state by which recovery finds the present segments, without a vote. Raises CorruptLog without
    a valid segment."""
    is_void = partial(is_invalidated, fs, directory)
    joins = _finished_joins(fs, directory, group_id, names, is_void)
    files = SegmentFiles(names, 0, joins, is_void)
    freed = files.freed
    found: dict[int, int] = {}
    for sequence in files.live:
        generation = _highest_generation(fs, directory / files.name(sequence), group_id, sequence)
        if generation >= 0:
            found.update(dict.fromkeys(range(files.first(sequence), sequence + 1), generation))
    if not found:
        raise CorruptLog(f"{directory}: neither the hard state nor any segment header is whole")
    checkpoints, _ = load_checkpoints(fs, directory, names, group_id)
    oldest = segment_of(checkpoints[-1].position) if checkpoints else min(found)
    indexed = _list_indexed_sequences(names)
    while oldest - 1 in found or oldest - 1 in freed or oldest - 1 in indexed:
        oldest -= 1
    while oldest in freed:
        oldest += 1
    return LogState(HardState(), max(found.values()), _NO_POSITION, oldest, joins=joins)


def begin_search(fs: FileSystem, directory: Path) -> None:
    """Records that missing records are to be searched for. Raises OSError: without the file a later start
    could miss them."""
    fs.close(fs.open(directory / SALVAGED_NAME, create=True))
    fs.fsync_dir(directory)


def is_search_due(fs: FileSystem, directory: Path) -> bool:
    """Returns whether a search was begun and not ended."""
    return SALVAGED_NAME in fs.list_dir(directory)


def end_search(fs: FileSystem, directory: Path) -> None:
    """Records that the missing records are recorded. Raises OSError."""
    fs.unlink(directory / SALVAGED_NAME)
    fs.fsync_dir(directory)


def _list_indexed_sequences(names: list[str]) -> set[int]:
    """Returns the sequences that the log had by its index files: a freed segment loses its index file first.
    Recovery rejects a log without the file of one of them."""
    found = set(sequences_of(names, INDEX_SUFFIX))
    for each in joined_of(set(with_missing_joined(names)) - set(names)):
        found.update(range(each.first, each.last + 1))
    return found


def _finished_joins(
    fs: FileSystem, directory: Path, group_id: int, names: list[str], is_void: Callable[[str], bool]
) -> int:
    """Returns the number of joins that count. The last one may have been left unfinished, or the names of its
    segments may be back. It counts where one of them has no file: nothing else has its records. Else only
    valid files have been cleaned since, so the side with fewer bytes of the frames counts."""
    joined = sorted([each for each in joined_of(names) if not is_void(each.name)], key=lambda e: e.number)
    if not joined:
        return 0
    last = joined.pop()
    freed, present = FreedSequences(names), set(sequences_of(names, SEGMENT_SUFFIX))
    for each in joined:
        present.update(range(each.first, each.last + 1))
    if any(s not in present and s not in freed for s in range(last.first, last.last + 1)):
        return last.number
    former = SegmentFiles(names, 0, last.number - 1, is_void)
    old: dict[int, int] = {}
    for sequence in former.live:
        if last.first <= sequence <= last.last:
            old.update(_payload_bytes(fs, directory / former.name(sequence), group_id, sequence))
    new = _payload_bytes(fs, directory / last.name, group_id, last.last)
    is_cleaned = sum([old[index] - new[index] for index in old.keys() & new.keys()]) > 0
    return last.number if is_cleaned else last.number - 1


def _payload_bytes(fs: FileSystem, path: Path, group_id: int, sequence: int) -> dict[int, int]:
    """Returns the payload bytes of a segment's frames by Raft index, as far as their heads verify."""
    fd = fs.open(path)
    try:
        decoded = decode_segment_header(fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if decoded is None or (decoded[1].group_id, decoded[1].sequence) != (group_id, sequence):
            return {}
        header = decoded[1]
        scan = SegmentScan(
            lambda length, offset: fs.pread(fd, length, offset),
            min(header.segment_bytes, fs.size(fd)),
            sequence,
            group_seed(group_id),
            LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms),
            SEGMENT_HEADER_BYTES,
            (1 << 64) - 1,
            _NO_POSITION,
            header.rewritten,
        )
        scan.last_generation, scan.heads_only = header.generation, True
        return {frame.index: frame.end - frame.payload_offset for frame in scan.frames()}
    except OSError as error:
        if not is_lost(error):
            raise
        return {}
    finally:
        fs.close(fd)


def _highest_generation(fs: FileSystem, path: Path, group_id: int, sequence: int) -> int:
    """Returns the highest generation in a segment's header and markers; -1 without a header."""
    seed = group_seed(group_id)
    fd = fs.open(path)
    try:
        header = decode_segment_header(fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if (
            header is None
            or header[0] > SEGMENT_REWRITTEN_FORMAT
            or (header[1].group_id, header[1].sequence) != (group_id, sequence)
        ):
            return -1
        best, at, size = header[1].generation, SEGMENT_HEADER_BYTES, fs.size(fd)
        while at < size:
            data = fs.pread(fd, WINDOW_BYTES, at)
            hit = data.find(MARKER_MAGIC)
            while hit >= 0:
                marker = decode_marker(data, hit, seed)
                if marker is not None and marker[1] == position_of(sequence, at + hit):
                    best = max(best, marker[0])
                hit = data.find(MARKER_MAGIC, hit + 1)
            at += max(1, len(data) - 64) if at + len(data) < size else len(data) or size
        return best
    finally:
        fs.close(fd)
