"""The marker of an idle log: the last flush is marked soon, not with the next write.

A marker distinguishes a torn tail from corruption (`docs/disk_format.md`). Invariant: it is written only
while no flush is under way, at most a hundredth of a second after the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from lockstep.storage.types import StorageFull

if TYPE_CHECKING:
    from lockstep.storage.replica import Replica

IDLE_MARKER_SECONDS = 0.008
"""An idle log writes its marker within 10 ms of the last flush."""
IDLE_TIMER_SLACK_SECONDS = 0.001
"""Loops count in milliseconds: a timer may fire a little early."""


class IdleMarker:
    """The idle marker of one replica's log."""

    __slots__ = ("_flushed_at", "_loop", "_replica", "_timer")

    def __init__(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._flushed_at = 0.0

    def on_flush(self) -> None:
        """Starts the timer after a flush of everything written."""
        self._flushed_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(IDLE_MARKER_SECONDS, self._idle)

    def stop(self) -> None:
        """Stops writing markers."""
        if self._timer is not None:
            self._timer.cancel()

    def _idle(self) -> None:
        self._timer = None
        replica = self._replica
        if replica.stopped or replica.flusher.busy:
            return  # the end of a flush starts the timer again
        left = self._flushed_at + IDLE_MARKER_SECONDS - self._loop.time()
        if left > IDLE_TIMER_SLACK_SECONDS:
            self._timer = self._loop.call_later(left, self._idle)
            return
        try:
            with contextlib.suppress(StorageFull):  # the next write marks what is flushed
                replica.log.idle()
        except Exception as error:
            replica.fail(error)
