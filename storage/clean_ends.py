"""How far each partition has been cleaned, in this log as it is now.

Owns that memory, while the process lives: after a start everything counts as new, once. So it does when
other members' bytes have come into the log, by an installation or a repair: those members may have cleaned
less than this one, and what a tombstone deleted here long ago is there again below it.

Invariant: below `of(n)` no key of partition n has an older record than its last one. A truncation need not be
told: it ends above what is committed, and nothing else is cleaned.
"""

from __future__ import annotations

from collections.abc import Container, Mapping


class CleanEnds:
    """By partition number. On the log's own thread, but for `of` and `forgotten`."""

    __slots__ = ("_ends", "forgotten")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self.forgotten = 0
        """How often everything was forgotten: a pass that began before is not to be believed."""

    def of(self, partition: int) -> int:
        """Below this offset it is clean."""
        return self._ends.get(partition, 0)

    def note(self, ends: Mapping[int, int], there: Container[int]) -> None:
        """A pass has come to these ends; partitions that are not there any more are left out."""
        self._ends = {each: end for each, end in {**self._ends, **ends}.items() if each in there}

    def forget(self) -> None:
        """Bytes of another member are, or are about to be, in the log."""
        self._ends = {}
        self.forgotten += 1
