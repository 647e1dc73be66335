"""Freed files: empty files, `*.freed`, each named after the sequences of freed segments.

A freed file names one sequence, or the first and last of a run, above the oldest segment that is left. Runs
are merged: there is at most one freed file more than there are segments. A wider one is durable before the
ones that it replaces are removed, so that a crash leaves every freed sequence named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from pathlib import Path

from lockstep.storage.log.file_system import FileSystem

FREED_FILE_SUFFIX = ".freed"

Run = tuple[int, int]
"""The first and the last sequence."""


def freed_file_name(first: int, last: int | None = None) -> str:
    """Returns the name for one sequence, or for a run."""
    end = "" if last is None or last == first else f"-{last:016d}"
    return f"{first:016d}{end}{FREED_FILE_SUFFIX}"


def freed_runs(names: Iterable[str]) -> list[Run]:
    """The runs that a directory's freed files name, ascending; they may overlap after a crash."""
    found = []
    for name in names:
        if name.endswith(FREED_FILE_SUFFIX):
            first, dash, last = name.removesuffix(FREED_FILE_SUFFIX).partition("-")
            if first.isdigit() and (last.isdigit() or not dash):
                found.append((int(first), int(last or first)))
    return sorted(found)


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Returns the fewest runs of the same sequences, ascending."""
    result: list[Run] = []
    for first, last in sorted(runs):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result


class FreedSequences:
    """The sequences that a directory's freed files name."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self, names: Iterable[str]) -> None:
        self._runs = merge_runs(freed_runs(names))
        self._firsts = [first for first, _ in self._runs]

    def any_below(self, sequence: int) -> bool:
        return bool(self._firsts) and self._firsts[0] < sequence

    def __contains__(self, sequence: int) -> bool:
        return self._last_of_run(sequence) >= sequence

    def _last_of_run(self, sequence: int) -> int:
        """The end of the last run that begins at or before this sequence; -1 where none does."""
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
    """Records these sequences as freed, durably when this returns, in as few files as possible."""
    existing_runs = freed_runs(fs.list_dir(directory))
    merged_runs = merge_runs([*existing_runs, *((sequence, sequence) for sequence in sequences)])
    for run in merged_runs:
        if run not in existing_runs:
            fs.close(fs.open(directory / freed_file_name(*run), create=True))
    fs.fsync_dir(directory)  # also of those that are existing_runs: the last time may have failed here
    for run in existing_runs:
        if run not in merged_runs:
            fs.unlink(directory / freed_file_name(*run))


def forget_freed(fs: FileSystem, directory: Path, below: int, but: Collection[int]) -> None:
    """Removes freed files of sequences below the log's oldest, unless they name one of `but`."""
    for first, last in freed_runs(fs.list_dir(directory)):
        if last < below and not any(first <= each <= last for each in but):
            fs.unlink(directory / freed_file_name(first, last))
