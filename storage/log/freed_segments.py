"""Tombstones: empty files whose names say which sequences were freed although an older segment lives.

One stands for a sequence, or for a run of them, its first and its last: however much is freed behind a
segment that stays, there is at most one tombstone more than there are segments. A wider one is durable
before those it stands for are removed, so that a crash leaves every freed sequence named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from pathlib import Path

from lockstep.storage.log.file_system import FileSystem

TOMBSTONE_SUFFIX = ".freed"

Run = tuple[int, int]
"""The first and the last sequence."""


def tombstone_name(first: int, last: int | None = None) -> str:
    """Returns the name for one sequence, or for a run."""
    end = "" if last is None or last == first else f"-{last:016d}"
    return f"{first:016d}{end}{TOMBSTONE_SUFFIX}"


def runs_of(names: Iterable[str]) -> list[Run]:
    """What each of a directory's tombstones stands for, rising; they may overlap after a crash."""
    found = []
    for name in names:
        if name.endswith(TOMBSTONE_SUFFIX):
            first, dash, last = name.removesuffix(TOMBSTONE_SUFFIX).partition("-")
            if first.isdigit() and (last.isdigit() or not dash):
                found.append((int(first), int(last or first)))
    return sorted(found)


def merged(runs: Iterable[Run]) -> list[Run]:
    """As few runs as possible that stand for the same sequences, rising."""
    result: list[Run] = []
    for first, last in sorted(runs):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result


class Freed:
    """The sequences that a directory's tombstones name."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self, names: Iterable[str]) -> None:
        self._runs = merged(runs_of(names))
        self._firsts = [first for first, _ in self._runs]

    def any_below(self, sequence: int) -> bool:
        return bool(self._firsts) and self._firsts[0] < sequence

    def __contains__(self, sequence: int) -> bool:
        return self._last_of_run(sequence) >= sequence

    def _last_of_run(self, sequence: int) -> int:
        """Where the run ends that begins at this one or before it; -1 where none does."""
        at = bisect_right(self._firsts, sequence) - 1
        return self._runs[at][1] if at >= 0 else -1

    def first_missing(self, sequence: int, present: Collection[int]) -> int:
        """The first sequence from this one on that is neither present nor freed."""
        while True:
            if sequence in self:
                sequence = self._last_of_run(sequence) + 1
            elif sequence in present:
                sequence += 1
            else:
                return sequence


def record_freed(fs: FileSystem, directory: Path, sequences: Iterable[int]) -> None:
    """Name these as freed, durably when this returns, in as few files as possible."""
    there = runs_of(fs.list_dir(directory))
    wanted = merged([*there, *((sequence, sequence) for sequence in sequences)])
    for run in wanted:
        if run not in there:
            fs.close(fs.open(directory / tombstone_name(*run), create=True))
    fs.fsync_dir(directory)  # also of those that are there: the last time may have failed here
    for run in there:
        if run not in wanted:
            fs.unlink(directory / tombstone_name(*run))


def forget_freed(fs: FileSystem, directory: Path, below: int, but: Collection[int]) -> None:
    """Remove tombstones that stand only for sequences below the log's oldest, and for none of `but`."""
    for first, last in runs_of(fs.list_dir(directory)):
        if last < below and not any(first <= each <= last for each in but):
            fs.unlink(directory / tombstone_name(first, last))
