"""Classifies the segment files of a directory by their names: those of the log, and leftovers. Pure.

A file in which small neighbours were joined is named after the first and the last of them and after its
join, so its name never was another file's. Joins are numbered, and the state file has the number of finished
ones: a file of a later join is ignored. A joined file that counts replaces every sequence it names, whatever
else has these names: files of former segments that come back after a power loss stay leftovers.
Reads no file itself. Where bytes of a segment are: `format`; how files are joined: `joiner`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from lockstep.storage.log.freed_segments import FreedSequences, Run, is_number

SEGMENT_SUFFIX: Final = ".segment"
INDEX_SUFFIX: Final = ".index"
_JOIN_NUMBER: Final = re.compile("[0-9]{8,}")


def segment_name(sequence: int) -> str:
    return f"{sequence:016d}{SEGMENT_SUFFIX}"


def index_name(sequence: int) -> str:
    return f"{sequence:016d}{INDEX_SUFFIX}"


def sequences_of(names: Iterable[str], suffix: str) -> list[int]:
    """The sequences of a directory's files of one sort, rising; without joined ones."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if is_number(stem))


class JoinedFile(NamedTuple):
    """The name of a joined segment's file, taken apart."""

    first: int
    last: int
    """The sequence of the joined segment: its markers and positions have this one."""
    number: int
    """The number of the join."""

    @property
    def stem(self) -> str:
        return f"{self.first:016d}-{self.last:016d}-{self.number:08d}"

    @property
    def name(self) -> str:
        return self.stem + SEGMENT_SUFFIX


def joined_of(names: Iterable[str]) -> list[JoinedFile]:
    """The joined segments' files, by their first sequence."""
    found = []
    for name in names:
        if name.endswith(SEGMENT_SUFFIX):
            parts = name.removesuffix(SEGMENT_SUFFIX).split("-")
            if len(parts) == 3 and all(map(is_number, parts[:2])) and _JOIN_NUMBER.fullmatch(parts[2]):
                found.append(JoinedFile(*map(int, parts)))
    return sorted(found)


def outermost(joined: Iterable[JoinedFile]) -> set[JoinedFile]:
    """The joined files that no later join contains. Takes one step for each sequence that they name."""
    found: set[JoinedFile] = set()
    ends: dict[int, int] = {}
    """By sequence: the highest last sequence of the later joins that contain it."""
    by_number = attrgetter("number")
    for _, same in groupby(sorted(joined, key=by_number, reverse=True), by_number):
        new = [each for each in same if ends.get(each.first, -1) < each.last]
        found.update(new)
        for each in new:
            for sequence in range(each.first, each.last + 1):
                ends[sequence] = max(each.last, ends.get(sequence, -1))
    return found


class SegmentFiles:
    """A directory's segment files, classified.

    Args: oldest: the oldest sequence that must exist; joins: how many are finished; is_invalidated: whether a
    joined file was invalidated, which its first bytes show; wrong: runs in freed files that were not freed.
    """

    __slots__ = ("_firsts", "_joined", "_single", "covered", "freed", "leftover", "live", "unfinished")

    def __init__(
        self,
        names: Iterable[str],
        oldest: int,
        joins: int,
        is_invalidated: Callable[[str], bool],
        wrong: Iterable[Run] = (),
    ) -> None:
        names = list(names)
        self.freed = FreedSequences(names, wrong)
        joined = joined_of(names)
        void = {each for each in joined if each.number > joins or is_invalidated(each.name)}
        self.unfinished = [each.name for each in joined if each in void]
        """Joined files that do not count: the segments that they would replace do."""
        whole = [each for each in joined if each not in void]
        outer = outermost(whole)
        kept = [
            each for each in whole if each in outer and each.last >= oldest and each.last not in self.freed
        ]
        counting = set(kept)
        self._joined = {each.last: each for each in kept}
        self._firsts = {each.first: each.last for each in kept}
        self.covered = {s for each in kept for s in range(each.first, each.last + 1)}
        """The sequences that joined segments replace."""
        present = sequences_of(names, SEGMENT_SUFFIX)
        self._single = {s for s in present if s >= oldest and s not in self.freed and s not in self.covered}
        self.live = sorted([*self._single, *self._joined])
        """The sequences of the files that count, rising, including prepared ones after the end of the log."""
        self.leftover = [
            *[segment_name(s) for s in present if s not in self._single],
            *[each.name for each in whole if each not in counting],
        ]
        """Files of segments that were freed, or joined into others."""

    @property
    def has_joined(self) -> bool:
        return bool(self._joined)

    def is_live(self, sequence: int) -> bool:
        """True if a file that counts has this sequence."""
        return sequence in self._single or sequence in self._joined

    def name(self, sequence: int) -> str:
        """The name of a live segment's file, or of the one that a sequence would have."""
        joined = self._joined.get(sequence)
        return joined.name if joined is not None else segment_name(sequence)

    def index_name(self, sequence: int) -> str:
        return self.name(sequence).removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX

    def first(self, sequence: int) -> int:
        """The first sequence of a live segment, which may have several."""
        joined = self._joined.get(sequence)
        return joined.first if joined is not None else sequence

    def segment_from(self, sequence: int) -> int:
        """The sequence of the segment whose first sequence is this one; they differ where it was joined."""
        return self._firsts.get(sequence, sequence)

    def first_missing(self, oldest: int) -> int:
        """The first sequence from the oldest on that has no file and was not freed."""
        return self.freed.first_missing(oldest, {*self.live, *self.covered})
