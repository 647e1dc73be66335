"""Freed files: empty files, `*.freed`, each named after the sequences of freed segments.

A freed file names one sequence, or the first and last of a run, above the oldest segment that is left. Runs
are merged: there is at most one freed file more than there are segments. A wider one is durable before the
ones that it replaces are removed, so that a crash leaves every freed sequence named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from pathlib import Path

from lockstep.storage.log.file_system import FileSystem, is_full

FREED_FILE_SUFFIX = ".freed"

Run = tuple[int, int]
"""The first and the last sequence."""


def freed_file_name(first: int, last: int | None = None) -> str:
    """Returns the name for one sequence, or for a run."""
    end = "" if last is None or last == first else f"-{last:016d}"
    return f"{first:016d}{end}{FREED_FILE_SUFFIX}"


def is_number(text: str) -> bool:
    """Returns whether a part of a file's name is a sequence as it is written there: 16 digits."""
    return len(text) == 16 and text.isascii() and text.isdigit()


def freed_runs(names: Iterable[str]) -> list[Run]:
    """The runs that a directory's freed files name, ascending; they may overlap after a crash."""
    found = []
    for name in names:
        if name.endswith(FREED_FILE_SUFFIX):
            first, dash, last = name.removesuffix(FREED_FILE_SUFFIX).partition("-")
            if is_number(first) and (is_number(last) or not dash):
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


def _subtract_run(run: Run, other: Run) -> list[Run]:
    """Returns what is left of a run without another one: up to two runs."""
    parts = [(run[0], min(run[1], other[0] - 1)), (max(run[0], other[1] + 1), run[1])]
    return [(first, last) for first, last in parts if first <= last] if other[0] <= run[1] else [run]


class FreedSequences:
    """The sequences that a directory's freed files name."""

    __slots__ = ("_firsts", "runs")

    def __init__(self, names: Iterable[str], wrong: Iterable[Run] = ()) -> None:
        """Args: wrong: runs that do not count though they are named (`wrongly_freed`)."""
        self.runs = merge_runs(freed_runs(names))
        for run in wrong:
            self.runs = [part for each in self.runs for part in _subtract_run(each, run)]
        self._firsts = [first for first, _ in self.runs]

    def any_below(self, sequence: int) -> bool:
        return bool(self._firsts) and self._firsts[0] < sequence

    def __contains__(self, sequence: int) -> bool:
        return self._last_of_run(sequence) >= sequence

    def _last_of_run(self, sequence: int) -> int:
        """The end of the last run that begins at or before this sequence; -1 where none does."""
        at = bisect_right(self._firsts, sequence) - 1
        return self.runs[at][1] if at >= 0 else -1

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
    _replace_runs(fs, directory, existing_runs, merged_runs)


def _replace_runs(fs: FileSystem, directory: Path, existing_runs: list[Run], runs: list[Run]) -> None:
    for run in runs:
        if run not in existing_runs:
            fs.close(fs.open(directory / freed_file_name(*run), create=True))
    fs.fsync_dir(directory)  # also of those that are existing_runs: the last time may have failed here
    for run in existing_runs:
        if run not in runs:
            fs.unlink(directory / freed_file_name(*run))


def restrict_freed(fs: FileSystem, directory: Path, names: Iterable[str], runs: list[Run]) -> None:
    """Makes the directory's freed files name only these runs; on a full disk a later start does it."""
    existing_runs = freed_runs(names)
    if merge_runs(existing_runs) != runs:
        try:
            _replace_runs(fs, directory, existing_runs, runs)
            fs.fsync_dir(directory)
        except OSError as error:
            if not is_full(error):
                raise


def forget_freed(fs: FileSystem, directory: Path, below: int, but: Collection[int]) -> None:
    """Removes freed files of sequences below the log's oldest, unless they name one of `but`."""
    for first, last in freed_runs(fs.list_dir(directory)):
        if last < below and not any(first <= each <= last for each in but):
            fs.unlink(directory / freed_file_name(first, last))
