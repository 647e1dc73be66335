"""The back-off of leadership transfers: each one stops a group's appends for a moment.

Invariants: the preferred leader has been ready for a while before a transfer to it; a group whose transfers
fail, or whose preferred leader does not stay, gets no other transfer in between. The time is an argument, in
milliseconds.
"""

from __future__ import annotations

STEADY_MS = 3000
"""The least time for which a candidate must have been ready: a flapping node gets no leadership."""
MIN_INTERVAL_MS = 10_000
"""The least time between two transfers of a group by this node."""


class TransferBackoff:
    """The last transfer of one group, and its candidate."""

    __slots__ = ("_candidate", "_since_ms", "_transferred_ms")

    def __init__(self) -> None:
        self._candidate: int | None = None
        self._since_ms = 0
        self._transferred_ms: int | None = None

    def is_steady(self, candidate: int | None, now_ms: int) -> bool:
        """Records the preferred leader, if it could take over; returns whether it could for long enough."""
        if candidate != self._candidate:
            self._candidate, self._since_ms = candidate, now_ms
        return candidate is not None and now_ms - self._since_ms >= STEADY_MS

    def is_over(self, now_ms: int) -> bool:
        """Returns whether the last transfer is long enough ago."""
        return self._transferred_ms is None or now_ms - self._transferred_ms >= MIN_INTERVAL_MS

    def on_transfer(self, now_ms: int) -> None:
        """A transfer begins."""
        self._transferred_ms = now_ms
        self._candidate = None
