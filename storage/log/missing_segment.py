"""The error text about a missing segment: which file, what it held, and what an operator can do. Pure.

A joined segment's file has another name for each join, and the state file only counts joins. The name of its
index file, which is mostly still there, shows which it was. Does not: find out that one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Final

from lockstep.storage.log.segment_files import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    JoinedFile,
    joined_of,
    segment_name,
    sequences_of,
)

EMPTY_DIRECTORY: Final = "start a node of a cluster with the same number and an empty directory"
REMEDY: Final = f"put it back from a copy, or {EMPTY_DIRECTORY}"

NO_INDEX: Final = "its index file is missing or damaged, too"
"""The reason why the content of a lost segment is unknown."""
NO_STATE: Final = "the state file is damaged, too"
"""The reason where a new state was made from the files that are there."""


def joined_file_of(names: Iterable[str], sequence: int) -> JoinedFile | None:
    """The joined file whose index file is among these names and includes this sequence; of several the one
    of the last join."""
    files = [
        name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX for name in names if name.endswith(INDEX_SUFFIX)
    ]
    found = [each for each in joined_of(files) if each.first <= sequence <= each.last]
    return max(found, key=attrgetter("number"), default=None)


def with_missing_joined(names: Iterable[str]) -> list[str]:
    """These names, and those of joined files of which only the index file is left."""
    names = list(names)
    found = list(names)
    present = set(sequences_of(names, SEGMENT_SUFFIX))
    present.update(s for each in joined_of(names) for s in range(each.first, each.last + 1))
    for name in names:
        file = (
            joined_of([name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX])
            if name.endswith(INDEX_SUFFIX)
            else []
        )
        found += [each.name for each in file if present.isdisjoint(range(each.first, each.last + 1))]
    return found


def describe_missing(
    directory: Path,
    names: Iterable[str],
    sequence: int,
    joins: int,
    first_index: int,
    last_index: int,
    remedy: str = REMEDY,
    reason: str = "",
) -> str:
    """One line. `reason`: why the log cannot do without it; `joins`: how many are finished; `first_index`,
    `last_index`: the first and the last frame between its neighbours, 0 where that is not known."""
    joined = joined_file_of(names, sequence)
    name = joined.name if joined is not None else segment_name(sequence)
    what = "the segment is missing"
    if joined is not None:
        what += f", into which segments {joined.first} to {joined.last} were joined"
    elif joins:
        what += ", or a file into which it was joined with others"
    if last_index:
        what += f"; it held frames {first_index or '...'} to {last_index}"
    if reason:
        what += f"; {reason}"
    return f"{directory / name}: {what}; {remedy}"
