"""The one timer of a driver.

Owns: its due time. Invariants: it fires at the core's deadline or before, which does no harm. So it is set
again only where the deadline may be earlier than before: to check all targets with each acknowledgement would
cost more than the acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lockstep.player.core.settings import NEVER_MS


class Alarm:
    """Calls `callback` on the running loop."""

    __slots__ = ("_callback", "_due_ms", "_loop", "_timer")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER_MS

    @property
    def now_ms(self) -> int:
        """The clock of the deadlines."""
        return int(self._loop.time() * 1000)

    def set(self, due_ms: int) -> None:
        """Fire at `due_ms`, unless it fires earlier anyway."""
        if due_ms >= self._due_ms:
            return
        self.clear()
        self._due_ms = due_ms
        self._timer = self._loop.call_at((due_ms + 1) / 1000, self._fire)  # not a hair too early

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_ms = None, NEVER_MS

    def _fire(self) -> None:
        self.clear()
        self._callback()
