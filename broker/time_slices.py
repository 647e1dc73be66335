"""How long one client's work may hold the loop before the others have their turn.

Everything runs on one loop: while it works for one client it hears no other, and no follower. Who may have
much to do therefore looks at the time between its pieces and does the rest in later turns of the loop: a
connection between requests, Produce between batches, the gate between batches that waited. It goes by time,
as nothing else tells a costly piece: a batch of a few hundred bytes may have 200,000 records to be opened.
What is left shares one turn (`TimeSlicer`), whosever it is: many hold the loop no longer than one does.
Does not: bound what many connections begin in one pass of the loop (three hundred first Fetches of 50 MB held
it for 1 to 2 s), or a piece. Limits do, where there are pieces that cost much, to some 0.7 s at most
(`protocol/records/batch_filter.py`, `broker/locks/headers.py`, `broker/recompression.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

TIME_SLICE_SECONDS: Final = 0.02
"""After so long it is the others' turn: a batch may take 0.7 s where its records must be opened, and many of
them minutes, in which followers would hear nothing."""

clock: Callable[[], float] = time.perf_counter
"""Seconds."""


class TimeSlice:
    """Lasts from when it is made. Args: seconds: how long."""

    __slots__ = ("_ends_at",)

    def __init__(self, seconds: float = TIME_SLICE_SECONDS) -> None:
        self._ends_at = clock() + seconds

    @property
    def is_over(self) -> bool:
        return clock() >= self._ends_at


class TimeSlicer:
    """What goes on in later turns of the loop, for whomever: all of it together has one turn in each."""

    __slots__ = ("_call_soon", "_is_scheduled", "_queue")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._queue: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def schedule(self, work: Callable[[], None]) -> None:
        """Call it once, in a later turn, after what waits already."""
        self._queue.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run_queued)

    def run_steps(self, steps: Iterator[None]) -> None:
        """Take steps, as `run_slice` wants them: now, and in later turns what takes longer than one."""
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
    """Take steps for one turn. Returns whether all are taken.

    Args:
        steps: yields before each of them. So one is left wherever this stops, and is the first to be taken
            when it is asked to go on, whatever the time.
    """
    ends_at = clock() + TIME_SLICE_SECONDS  # no Turn: this is the way of every Produce
    return all(clock() < ends_at for _ in steps)
