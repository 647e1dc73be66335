"""The progress of compaction: up to which offset each partition has been cleaned, in this log as it is now.

Owns that memory, while the process lives: after a start everything counts as new, once. So it does when
other members' bytes have come into the log, by an installation or a repair: those members may have cleaned
less than this one, and records that a tombstone deleted here long ago are there again below it.

Invariant: below `of(n)` no key of partition n has an older record than its last one. A truncation changes
nothing: it ends above the commit, and nothing else is cleaned.
"""

from __future__ import annotations

from collections.abc import Container, Mapping


class CompactionProgress:
    """By local id. On the log's own thread, but for `of` and `resets`."""

    __slots__ = ("_ends", "resets")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self.resets = 0
        """The number of resets: the result of a pass that began before a reset is dropped."""

    def of(self, partition: int) -> int:
        """Returns the offset below which a partition is clean."""
        return self._ends.get(partition, 0)

    def note(self, ends: Mapping[int, int], there: Container[int]) -> None:
        """Records the ends of a pass; partitions that do not exist any more are left out."""
        self._ends = {each: end for each, end in {**self._ends, **ends}.items() if each in there}

    def forget(self) -> None:
        """Resets all progress: bytes of another member are, or are about to be, in the log."""
        self._ends = {}
        self.resets += 1
