"""A deadline that is put off far more often than it passes: a member's session.

Putting it off stores a number; the one timer is armed again when it fires too early. A session with a
heartbeat every 3 s costs one timer per session timeout, and none of the loop's heap work per heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class SessionTimer:
    """Calls `passed(*args)` once when its time has come; not is_armed until `put_off`."""

    __slots__ = ("_args", "_armed_at", "_at", "_loop", "_passed", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[..., None], *args: object) -> None:
        self._loop = loop
        self._passed = passed
        self._args = args
        self._at = self._armed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_armed(self) -> bool:
        """Will it pass unless it is put off?"""
        return self._timer is not None

    def put_off(self, timeout_ms: int) -> None:
        """It passes `timeout_ms` from now, whatever was said before."""
        at = self._at = self._loop.time() + timeout_ms / 1000
        if self._timer is None:
            self._arm(at)
        elif at < self._armed_at:
            self._timer.cancel()
            self._arm(at)

    def cancel(self) -> None:
        """It does not pass."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        self._armed_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        if self._at > self._armed_at:
            self._arm(self._at)
            return
        self._timer = None
        self._passed(*self._args)
