"""A timer for a deadline that often moves: it calls back at the earliest deadline that it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls `on_deadline` once a deadline has passed, in milliseconds of `now_ms`.

    A deadline later than the armed one changes nothing: the owner checks its own deadline when it is called.
    """

    __slots__ = ("_deadline_ms", "_handle", "_loop", "_now_ms", "_on_deadline")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], on_deadline: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._on_deadline = on_deadline
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0

    @property
    def is_armed(self) -> bool:
        return self._handle is not None

    def arm(self, deadline_ms: int) -> None:
        """Calls back at the deadline, or at the armed one if that is earlier."""
        if self._handle is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._deadline_ms = deadline_ms
        self._handle = self._loop.call_later(max(0, deadline_ms - self._now_ms()) / 1000, self._fire)

    def cancel(self) -> None:
        """Stops calling back until it is armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_deadline()
