"""What recovery finds beside the log and puts in order, after the verdict and the save that rests on it.

Each step may be done again after another crash: files that follow the log become ready segments, what an
installation left that was not finished is removed, and what one left to do that was finished is done.
"""

from __future__ import annotations

from pathlib import Path

from storage.log.checkpoint_file import INCOMING, PlacedCheckpoint, checkpoint_name, is_installed
from storage.log.file_system import FileSystem
from storage.log.segment_pool import ReadyFile
from storage.log.segments import INDEX_SUFFIX, index_name, segment_name, sequences_of
from storage.log.tombstones import runs_of, tombstone_name


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
    fs: FileSystem, directory: Path, names: list[str], live: list[int], next_sequence: int, oldest: int
) -> None:
    """Index files of no sealed segment, and the names of an installation that was not finished."""
    stale = [
        directory / index_name(s)
        for s in sequences_of(names, INDEX_SUFFIX)
        if s >= next_sequence - 1 or s not in live
    ]
    stale += [directory / n for n in names if n.startswith(INCOMING) and not is_installed(n, oldest)]
    stale += [directory / tombstone_name(*run) for run in runs_of(names) if run[0] >= next_sequence]
    _remove(fs, directory, stale)


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
