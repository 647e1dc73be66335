"""Files that recovery finds beside the log and puts in order, after the verdict and the save that rests on
it.

Each step may be done again after another crash: files that follow the log become ready segments, what an
installation left that was not finished is removed, and what one left to do that was finished is done.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log.checkpoint_file import INCOMING, PlacedCheckpoint, checkpoint_name, is_installed
from lockstep.storage.log.file_system import FileSystem, is_full, unless_lost, write_all
from lockstep.storage.log.format import SEGMENT_HEADER_BYTES, encode_void_header
from lockstep.storage.log.freed_segments import runs_of, tombstone_name
from lockstep.storage.log.segment_files import INDEX_SUFFIX, SegmentFiles, segment_name
from lockstep.storage.log.segment_pool import ReadyFile


def ready_again(
    fs: FileSystem, directory: Path, live: list[int], next_sequence: int, segment_bytes: int
) -> list[ReadyFile]:
    """Files that follow the log without a gap and have the right size are ready segments; others go, and
    those whose room is not there: a copy of a data directory may have made holes of what was not written."""
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


def remove_leftovers(
    fs: FileSystem, directory: Path, names: list[str], files: SegmentFiles, next_sequence: int, oldest: int
) -> None:
    """Index files of no sealed segment, and the names of an installation that was not finished."""
    kept = {files.index_name(s) for s in files.live if s < next_sequence - 1}
    stale = [directory / n for n in names if n.endswith(INDEX_SUFFIX) and _is_ours(n) and n not in kept]
    stale += [directory / n for n in names if n.startswith(INCOMING) and not is_installed(n, oldest)]
    stale += [directory / tombstone_name(*run) for run in runs_of(names) if run[0] >= next_sequence]
    _remove(fs, directory, stale)


def _is_ours(index_name: str) -> bool:
    return index_name.removesuffix(INDEX_SUFFIX).replace("-", "").isdigit()


def void_unfinished(fs: FileSystem, directory: Path, files: SegmentFiles) -> bool:
    """Remove joined files that do not count, for good: a void header comes first, so that a name that comes
    back after a power loss is none's. Needs no room; False where it could not be done for want of that."""
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


def is_void(fs: FileSystem, directory: Path, name: str) -> bool:
    """True if `void_unfinished` gave this joined file up at an earlier open; not if it cannot be read."""

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
    """The switch was made and is saved in both slots: the checkpoint gets its final name."""
    for placed in checkpoints:
        if placed.name.startswith(INCOMING):
            final = checkpoint_name(placed.checkpoint.index)
            fs.rename(directory / placed.name, directory / final)
            fs.fsync_dir(directory)
            placed.name = final
