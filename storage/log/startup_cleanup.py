"""Cleanup of a log's directory at startup: stale files are removed, interrupted operations completed.

Runs after recovery has decided where the log ends and has saved that. Each step may be repeated after another
crash: segment files above the log's end become ready segments, an unfinished installation's files are
removed, and a finished one's checkpoint gets its final name.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.checkpoint_file import INCOMING, PlacedCheckpoint, checkpoint_name, is_unfinished
from lockstep.storage.log.file_system import FileSystem, is_full, unless_lost, write_all
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, encode_void_header, position_of
from lockstep.storage.log.freed_segments import restrict_freed
from lockstep.storage.log.segment_files import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SegmentFiles,
    joined_of,
    segment_name,
    sequences_of,
)
from lockstep.storage.log.segment_pool import ReadyFile
from lockstep.storage.log.segments import Segment


def reuse_ready_files(
    fs: FileSystem, directory: Path, live: list[int], next_sequence: int, segment_bytes: int
) -> list[ReadyFile]:
    """Returns the files above the log's end, without a gap and of the right size, as ready segments; others
    are removed, as are those without allocated space: a copied data directory may have sparse files."""
    ready: list[ReadyFile] = []
    stale: list[Path] = []
    for sequence in [s for s in live if s >= next_sequence]:
        path = directory / segment_name(sequence)
        fd = fs.open(path)
        try:
            fits = sequence == next_sequence + len(ready) and fs.size(fd) == segment_bytes
            if fits:
                fs.allocate(fd, segment_bytes)
        except OSError:
            fits = False
        finally:
            fs.close(fd)
        if fits:
            ready.append(ReadyFile(sequence, path, segment_bytes))
        else:
            stale.append(path)
    _remove(fs, directory, stale)
    return ready


def remove_stale_files(
    fs: FileSystem, directory: Path, names: list[str], files: SegmentFiles, next_sequence: int, oldest: int
) -> None:
    """Removes index files of no sealed segment, freed files that are wrong, and the files of an unfinished
    installation."""
    kept = {files.index_name(s) for s in files.live if s < next_sequence - 1}
    stale = [directory / n for n in names if n.endswith(INDEX_SUFFIX) and _is_ours(n) and n not in kept]
    stale += [directory / n for n in names if is_unfinished(n, oldest)]
    _remove(fs, directory, stale)
    restrict_freed(fs, directory, names, [run for run in files.freed.runs if run[0] < next_sequence])


def _is_ours(index_name: str) -> bool:
    stem = index_name.removesuffix(INDEX_SUFFIX)
    return bool(sequences_of([index_name], INDEX_SUFFIX) or joined_of([stem + SEGMENT_SUFFIX]))


def invalidate_unfinished_joins(fs: FileSystem, directory: Path, files: SegmentFiles) -> bool:
    """Removes joined files whose join did not finish. A void header is written first: the file stays invalid
    should a power loss undo the removal. Needs no space; returns False if the disk is full nevertheless."""
    try:
        for name in files.unfinished:
            fd = fs.open(directory / name)
            try:
                write_all(fs, fd, [encode_void_header(name).ljust(SEGMENT_HEADER_BYTES, b"\0")], 0)
                fs.fdatasync(fd)
            finally:
                fs.close(fd)
        _remove(fs, directory, [directory / name for name in files.unfinished])
    except OSError as error:
        if not is_full(error):
            raise
        return False
    return True


def is_invalidated(fs: FileSystem, directory: Path, name: str) -> bool:
    """True if `invalidate_unfinished_joins` has written this joined file's header at an earlier open; False
    if the file cannot be read."""

    def read() -> bytes:
        fd = fs.open(directory / name)
        try:
            return fs.pread(fd, len(expected), 0)
        finally:
            fs.close(fd)

    expected = encode_void_header(name)
    return unless_lost(read) == expected


def remove_file(fs: FileSystem, path: Path) -> None:
    """Removes a file; a directory of that name stays."""
    try:
        fs.unlink(path)
    except (IsADirectoryError, PermissionError):
        if not path.is_dir():
            raise


def _remove(fs: FileSystem, directory: Path, stale: list[Path]) -> None:
    for path in stale:
        remove_file(fs, path)
    if stale:
        fs.fsync_dir(directory)


def flush_scanned(fs: FileSystem, segment: Segment, promise: int) -> None:
    """Flushes what was read of a segment, as it may be in the page cache only. Sealed segments are opened
    again when read. Args: promise: the position up to which a marker or header calls the log flushed.

    After a failed flush the system takes pages for clean that the disk never got: another flush would do
    nothing. So everything that no marker promises is written again. Source: Rebello and others, "Can
    applications recover from fsync failures?", 2020.
    """
    if segment.fd < 0:
        return
    begin = max(0, promise - position_of(segment.sequence, 0))
    if begin < segment.end:
        write_all(fs, segment.fd, [fs.pread(segment.fd, segment.end - begin, begin)], begin)
    fs.fdatasync(segment.fd)
    if segment.summary is not None:
        fs.close(segment.fd)
        segment.fd = -1


def finish_installation(fs: FileSystem, directory: Path, checkpoints: list[PlacedCheckpoint]) -> None:
    """The installation is saved in both slots of the state file: its checkpoint gets its final name."""
    for placed in checkpoints:
        if placed.name.startswith(INCOMING):
            final = checkpoint_name(placed.checkpoint.index)
            fs.rename(directory / placed.name, directory / final)
            fs.fsync_dir(directory)
            placed.name = final
