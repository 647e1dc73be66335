"""A group's flushes: on the loop while the disk is fast, in a thread while it is slow.

Owns one flush at a time. An inline flush costs less than waking a thread; a slow disk must stall no
heartbeat. Measured: `docs/decisions/0003-flush-inline-or-on-a-thread.md`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lockstep.storage.log.data_log import DataLog

log_of_flushes = logging.getLogger(__name__)

SLOW_FLUSH_SECONDS = 0.003
"""A disk whose flushes average longer gets a flusher thread."""
FAST_FLUSH_SECONDS = 0.0015
AVERAGE_WEIGHT = 0.1
STALLED_FLUSH_SECONDS = 1.0
"""A longer flush is logged."""


class Flusher:
    """Flushes one log.

    Args:
        seconds: a monotonic clock.
        done: called on the loop when a flush that `start` left under way has ended, with its error if any.
    """

    __slots__ = (
        "_average_seconds",
        "_done",
        "_log",
        "_loop",
        "_monotonic",
        "_name",
        "_thread",
        "busy",
        "flush_seconds",
        "flushes",
        "threaded",
    )

    def __init__(
        self,
        log: DataLog,
        name: str,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        done: Callable[[BaseException | None], None],
    ) -> None:
        self._log = log
        self._name = name
        self._loop = loop
        self._monotonic = monotonic
        self._done = done
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        """A thread of its own: on a slow disk cold reads must not delay commits."""
        self._average_seconds = 0.0
        self.flushes = 0
        self.flush_seconds = 0.0
        """The time of all flushes together."""
        self.threaded = False
        self.busy = False
        """A flush is under way in the thread: nothing may be written or truncated meanwhile."""

    def start(self) -> bool:
        """Flushes the log: True when it is flushed, False when `done` is called later. FlushFailed."""
        if not self.threaded:
            self._flush()
            return True
        self.busy = True
        self._loop.run_in_executor(self._thread, self._flush).add_done_callback(self._on_flush_end)
        return False

    def _flush(self) -> None:
        started = self._monotonic()
        self._log.flush()
        taken = self._monotonic() - started
        self.flushes += 1
        self.flush_seconds += taken
        if taken >= STALLED_FLUSH_SECONDS:
            log_of_flushes.warning("%s: the disk took %.1f s for one flush", self._name, taken)
        self._average_seconds += (taken - self._average_seconds) * AVERAGE_WEIGHT
        self.threaded = self._average_seconds > (FAST_FLUSH_SECONDS if self.threaded else SLOW_FLUSH_SECONDS)

    def _on_flush_end(self, flush: asyncio.Future[None]) -> None:
        self.busy = False
        self._done(flush.exception())

    def close(self) -> None:
        """Wait for a flush that is under way and end the thread."""
        self._thread.shutdown(wait=True)
