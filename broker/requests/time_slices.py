"""Time slices: one client's work uses the event loop for at most one slice, then others run.

Everything runs on one loop: while it works for one client it serves no other, and no follower. Long work
therefore checks the time between its steps and continues in later iterations of the loop: a connection
between requests, Produce between batches, verified batches one by one. Only time counts, as nothing else
shows a costly step: a batch of a few hundred bytes may have 200,000 records to be opened. All remaining work
shares one slice of each iteration (`TimeSlicer`). Does not: bound what many connections begin in one pass of
the loop (three hundred first Fetches of 50 MB held it for 1 to 2 s), or a piece. Limits do, where there are
pieces that cost much, to some 0.7 s at most (`protocol/records/batch_filter.py`,
`broker/locks/lock_headers.py`, `broker/produce/recompression.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

TIME_SLICE_SECONDS: Final = 0.02
"""After a slice other work runs: a batch may take 0.7 s where its records must be opened, and many of them
minutes, in which followers would get no heartbeat."""

clock: Callable[[], float] = time.perf_counter
"""Seconds."""


class TimeSlice:
    """A slice that begins with its creation. Args: seconds: its length."""

    __slots__ = ("_ends_at",)

    def __init__(self, seconds: float = TIME_SLICE_SECONDS) -> None:
        self._ends_at = clock() + seconds

    @property
    def is_over(self) -> bool:
        return clock() >= self._ends_at


class TimeSlicer:
    """Runs queued work in later iterations of the loop: all of it shares one time slice of each."""

    __slots__ = ("_call_soon", "_is_scheduled", "_queue")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._queue: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def schedule(self, work: Callable[[], None]) -> None:
        """Queue work that is called once in a later iteration."""
        self._queue.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run_queued)

    def run_steps(self, steps: Iterator[None]) -> None:
        """Run steps, as for `run_slice`: now, and in later iterations what takes longer than one slice."""
        if not run_slice(steps):
            self.schedule(partial(self.run_steps, steps))

    def _run_queued(self) -> None:
        self._is_scheduled = False
        queue = self._queue
        time_slice = TimeSlice()
        try:
            for _ in range(len(queue)):
                queue.popleft()()
                if time_slice.is_over:
                    break
        finally:
            if queue and not self._is_scheduled:
                self._is_scheduled = True
                self._call_soon(self._run_queued)


def run_slice(steps: Iterator[None]) -> bool:
    """Run steps for one time slice. Returns whether all are done.

    Args:
        steps: yields before each step. The step after the last yield is left, and runs first in the next
            slice.
    """
    ends_at = clock() + TIME_SLICE_SECONDS  # no Turn: this is the way of every Produce
    return all(clock() < ends_at for _ in steps)
