"""The back-off of leadership transfers: each one stops a group's appends for a moment.

Invariants: who is to lead by preference has been ready for a while; a group whose hand-overs fail, or whose
preferred leader does not stay, is left alone in between. The time is an argument, in milliseconds.
"""

from __future__ import annotations

STEADY_MS = 3000
"""So long the same member was ready to lead without a break: a node that flaps is not handed anything."""
BETWEEN_MS = 10_000
"""At least so long from one hand-over that this node begins to its next one in the group."""


class TransferBackoff:
    """The last transfer of one group, and its candidate."""

    __slots__ = ("_candidate", "_moved_ms", "_since_ms")

    def __init__(self) -> None:
        self._candidate: int | None = None
        self._since_ms = 0
        self._moved_ms: int | None = None

    def steady(self, candidate: int | None, now_ms: int) -> bool:
        """To be told with each look who could lead by preference; whether it has been so for long enough."""
        if candidate != self._candidate:
            self._candidate, self._since_ms = candidate, now_ms
        return candidate is not None and now_ms - self._since_ms >= STEADY_MS

    def is_over(self, now_ms: int) -> bool:
        """Returns whether the last transfer is long enough ago."""
        return self._moved_ms is None or now_ms - self._moved_ms >= BETWEEN_MS

    def on_transfer(self, now_ms: int) -> None:
        """A hand-over begins."""
        self._moved_ms = now_ms
        self._candidate = None
