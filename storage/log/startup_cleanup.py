"""Cleanup of a log's directory at startup: stale files are removed, interrupted operations completed.

Runs after recovery has decided where the log ends and has saved that. Each step may be repeated after another
crash: segment files above the log's end become ready segments, an unfinished installation's files are
removed, and a finished one's checkpoint gets its final name.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.checkpoint_file import INCOMING, PlacedCheckpoint, checkpoint_name, is_installed
from lockstep.storage.log.file_system import FileSystem, is_full, unless_lost, write_all
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, encode_void_header
from lockstep.storage.log.freed_segments import freed_file_name, freed_runs
from lockstep.storage.log.segment_files import INDEX_SUFFIX, SegmentFiles, segment_name
from lockstep.storage.log.segment_pool import ReadyFile


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
    """Removes index files of no sealed segment, and the files of an unfinished installation."""
    kept = {files.index_name(s) for s in files.live if s < next_sequence - 1}
    stale = [directory / n for n in names if n.endswith(INDEX_SUFFIX) and _is_ours(n) and n not in kept]
    stale += [directory / n for n in names if n.startswith(INCOMING) and not is_installed(n, oldest)]
    stale += [directory / freed_file_name(*run) for run in freed_runs(names) if run[0] >= next_sequence]
    _remove(fs, directory, stale)


def _is_ours(index_name: str) -> bool:
    return index_name.removesuffix(INDEX_SUFFIX).replace("-", "").isdigit()


def invalidate_unfinished_joins(fs: FileSystem, directory: Path, files: SegmentFiles) -> bool:
    """Removes joined files whose join did not finish. A void header is written first: the file stays invalid
    should a power loss undo the removal. Needs no space; returns False if the disk is full all the same."""
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
    """True if `invalidate_unfinished_joins` gave this joined file at an earlier open; False if it cannot be
    read."""

    def read() -> bytes:
        fd = fs.open(directory / name)
        try:
            return fs.pread(fd, len(expected), 0)
        finally:
            fs.close(fd)

    expected = encode_void_header(name)
    return unless_lost(read) == expected


def _remove(fs: FileSystem, directory: Path, stale: list[Path]) -> None:
    for path in stale:
        fs.unlink(path)
    if stale:
        fs.fsync_dir(directory)


def finish_installation(fs: FileSystem, directory: Path, checkpoints: list[PlacedCheckpoint]) -> None:
    """The installation is saved in both slots of the state file: its checkpoint gets its final name."""
    for placed in checkpoints:
        if placed.name.startswith(INCOMING):
            final = checkpoint_name(placed.checkpoint.index)
            fs.rename(directory / placed.name, directory / final)
            fs.fsync_dir(directory)
            placed.name = final
