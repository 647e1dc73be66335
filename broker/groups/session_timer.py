"""The timer of a member's session: a deadline that is refreshed far more often than it expires.

A refresh only stores the deadline; the one timer is armed again when it fires too early. A session with a
heartbeat every 3 s costs one timer per session timeout, and none of the loop's heap work per heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class SessionTimer:
    """Calls `on_timeout(*args)` once at its deadline; not armed before the first `refresh`."""

    __slots__ = ("_args", "_deadline", "_loop", "_on_timeout", "_timer", "_timer_deadline")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_timeout: Callable[..., None], *args: object
    ) -> None:
        self._loop = loop
        self._on_timeout = on_timeout
        self._args = args
        self._deadline = self._timer_deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_armed(self) -> bool:
        """True if it expires without another `refresh`."""
        return self._timer is not None

    def refresh(self, timeout_ms: int) -> None:
        """Sets the deadline to `timeout_ms` from now, which may be earlier than before."""
        deadline = self._deadline = self._loop.time() + timeout_ms / 1000
        if self._timer is None:
            self._arm(deadline)
        elif deadline < self._timer_deadline:
            self._timer.cancel()
            self._arm(deadline)

    def cancel(self) -> None:
        """Disarms the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, deadline: float) -> None:
        self._timer_deadline = deadline
        self._timer = self._loop.call_at(deadline, self._fire)

    def _fire(self) -> None:
        if self._deadline > self._timer_deadline:
            self._arm(self._deadline)
            return
        self._timer = None
        self._on_timeout(*self._args)
