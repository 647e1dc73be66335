"""Freed files that are wrong: they name a segment that is whole, and would hide its records permanently.

A stray file, or a restore that mixes the directories of two nodes, may bring one. Freeing removes a segment's
index file right after the freed file is durable, and long before its own file gets another use. So a segment
whose file has a valid header, and an index file that fits it and the segments beside it, stays in the log. A
crash between these two steps leaves the same: then the segment is freed again. No segment from the older
checkpoint's on is freed. Reads files, changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from lockstep.storage.log.file_system import FileSystem, unless_lost
from lockstep.storage.log.format import SEGMENT_REWRITTEN_FORMAT, SegmentHeader, decode_segment_header
from lockstep.storage.log.freed_segments import FreedSequences, Run
from lockstep.storage.log.index_file import IndexHeader
from lockstep.storage.log.lost_segments import is_index_of, load_index_head, read_header_bytes
from lockstep.storage.log.segment_files import SegmentFiles

_END: Final = 1 << 62
"""Higher than every sequence."""


def find_wrongly_freed(
    fs: FileSystem,
    directory: Path,
    group_id: int,
    names: Iterable[str],
    oldest: int,
    joins: int,
    is_invalidated: Callable[[str], bool],
    below: int | None,
) -> list[Run]:
    """Returns the runs of sequences that freed files name though their segments are whole, or not freed yet.

    Args: oldest, joins, is_invalidated: as `SegmentFiles`; below: the segment of the older checkpoint; None
    without a checkpoint."""
    names = list(names)
    freed = FreedSequences(names)
    if not freed.runs:
        return []
    counting = SegmentFiles(names, oldest, joins, is_invalidated)
    every = SegmentFiles(names, oldest, joins, is_invalidated, [(0, _END)])
    found: list[Run] = []
    headers = _Headers(fs, directory, group_id, every)
    for sequence in every.live:
        if sequence not in freed or (below is not None and sequence >= below):
            continue
        first = every.first(sequence)
        after = every.segment_from(sequence + 1)
        header = headers.get(sequence)
        following = headers.get(after) if every.is_live(after) else None
        index = _index_of(fs, directory / every.index_name(sequence))
        if header is None or index is None or not is_index_of(index, header, following):
            continue
        is_beside = counting.is_live(first - 1) or any(run[1] == first - 1 for run in found)
        before = _index_of(fs, directory / every.index_name(first - 1)) if is_beside else None
        fits = before is None or (before.chain, before.last_index + 1) == (header.chain, header.first_index)
        # A joined file that was freed may have left the files of its segments, not yet cleaned.
        if fits and (before is not None or first == 1 or not joins):
            found.append((first, sequence))
    return found if below is None else [*found, (below, _END)]


class _Headers:
    """The valid headers of segment files, each read once."""

    def __init__(self, fs: FileSystem, directory: Path, group_id: int, files: SegmentFiles) -> None:
        self._fs, self._directory, self._group_id, self._files = fs, directory, group_id, files
        self._known: dict[int, SegmentHeader | None] = {}

    def get(self, sequence: int) -> SegmentHeader | None:
        if sequence not in self._known:
            self._known[sequence] = self._read(sequence)
        return self._known[sequence]

    def _read(self, sequence: int) -> SegmentHeader | None:
        path = self._directory / self._files.name(sequence)
        got = unless_lost(partial(read_header_bytes, self._fs, path))
        found = decode_segment_header(got[0]) if got is not None else None
        if got is None or found is None or found[0] > SEGMENT_REWRITTEN_FORMAT:
            return None
        header = found[1]
        is_ours = (header.group_id, header.sequence) == (self._group_id, sequence)
        return header if is_ours and got[1] >= header.segment_bytes else None


def _index_of(fs: FileSystem, path: Path) -> IndexHeader | None:
    loaded = load_index_head(fs, path)
    return loaded[0] if loaded is not None else None
