"""The leadership that this member serves: whether and since when, and the listeners of its changes.

A member serves once it leads and has applied all before its term; `LogGroup` then calls `serve`. Does not:
elect, or know why a leadership ends (`raft/`, `replica`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log_of_leadership = logging.getLogger(__name__)

UNKNOWN_OUTCOME_SECONDS = 0.5
"""After a leadership is lost its entries may still become known to be committed, for so long; then their
waiters fail with NotLeader. A leader that was partitioned would let them wait until it is back."""
NEWLY_LED_SECONDS = 2.0


class ServedLeadership:
    """See the module.

    Args:
        on_outcome_unknown: called `UNKNOWN_OUTCOME_SECONDS` after a leadership was lost, unless this member
            serves again.
    """

    __slots__ = (
        "_changed_at",
        "_loop",
        "_on_outcome_unknown",
        "group_id",
        "is_serving",
        "leadership_count",
        "listeners",
    )

    def __init__(
        self, group_id: int, loop: asyncio.AbstractEventLoop, on_outcome_unknown: Callable[[], None]
    ) -> None:
        self.group_id = group_id
        self._loop = loop
        self._on_outcome_unknown = on_outcome_unknown
        self.is_serving = False
        self.leadership_count = 0
        """A new value after each change."""
        self._changed_at = 0.0
        self.listeners: list[Callable[[bool], None]] = []
        """Called with `is_serving` after each change, in order, none left out."""

    @property
    def is_new(self) -> bool:
        """True shortly after a change: clients are still following it."""
        return self._loop.time() - self._changed_at < NEWLY_LED_SECONDS

    def serve(self, serving: bool) -> None:
        """Begins or stops to accept appends."""
        if serving == self.is_serving:
            return
        self.is_serving = serving
        self.leadership_count += 1
        self._changed_at = self._loop.time()
        if not serving:
            self._loop.call_later(UNKNOWN_OUTCOME_SECONDS, self._end_unknown_outcome, self.leadership_count)
        for listener in self.listeners:
            self._loop.call_soon(self._notify, listener, serving)

    def _end_unknown_outcome(self, leadership_count: int) -> None:
        if leadership_count == self.leadership_count:
            self._on_outcome_unknown()

    def _notify(self, listener: Callable[[bool], None], serving: bool) -> None:
        if listener not in self.listeners:
            return  # it was removed
        try:
            listener(serving)
        except Exception:  # the other listeners are still called
            log_of_leadership.exception("log group %d: a listener of its leadership failed", self.group_id)
