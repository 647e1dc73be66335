"""The one timer of a playing.

Owns: when it goes off. Invariants: it goes off at the core's deadline or before, which does no harm. So it is
set anew only where something may be due earlier than it was: to look through all targets with each
acknowledgement would cost more than the acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from player.core.settings import NEVER_MS


class Alarm:
    """Calls `ring` on the running loop."""

    __slots__ = ("_due_ms", "_loop", "_ring", "_timer")

    def __init__(self, ring: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER_MS

    @property
    def now_ms(self) -> int:
        """The clock of the deadlines."""
        return int(self._loop.time() * 1000)

    def set(self, due_ms: int) -> None:
        """Go off at `due_ms`, unless it does so earlier anyway."""
        if due_ms >= self._due_ms:
            return
        self.clear()
        self._due_ms = due_ms
        self._timer = self._loop.call_at((due_ms + 1) / 1000, self._goes_off)  # not a hair too early

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_ms = None, NEVER_MS

    def _goes_off(self) -> None:
        self.clear()
        self._ring()
