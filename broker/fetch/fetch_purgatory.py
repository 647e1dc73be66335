"""Requests that wait for a partition to grow: long-poll Fetch.

Owns: the delayed fetches of each partition, and waking them once per commit, all in one callback.
Invariants: a waiting fetch is finished exactly once: by data, by its deadline, or because its client went
away; then nothing refers to it any more; an attempt that raises holds up none of the others. Does not:
read or decide how much is enough (the fetch does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

log = logging.getLogger("lockstep.fetch")


class WatchedPartition(Protocol):
    """The attribute of a partition that fetches wait for."""

    delayed_fetches: dict[Any, None]


class DelayedFetch:
    """One request that is tried again whenever one of its partitions grew."""

    __slots__ = ("attempt", "finished", "partitions", "timer", "woken")

    def __init__(self, attempt: Callable[[bool], bool], partitions: Sequence[WatchedPartition]) -> None:
        self.attempt = attempt
        """attempt(expired) -> whether it has responded; with `expired` it must respond."""
        self.partitions = partitions
        self.timer: asyncio.TimerHandle | None = None
        self.woken = False
        self.finished = False


class FetchPurgatory:
    """All waiting fetches of a broker."""

    __slots__ = ("_loop", "_woken", "count")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken: list[DelayedFetch] = []
        self.count = 0

    def wait(
        self, attempt: Callable[[bool], bool], partitions: Sequence[WatchedPartition], max_wait_ms: int
    ) -> DelayedFetch:
        """Try `attempt(False)` after commits to `partitions`, `attempt(True)` after `max_wait_ms`."""
        fetch = DelayedFetch(attempt, partitions)
        for partition in partitions:
            partition.delayed_fetches[fetch] = None
        fetch.timer = self._loop.call_later(max_wait_ms / 1000, self._expire, fetch)
        self.count += 1
        return fetch

    def wake(self, partition: WatchedPartition) -> None:
        """The partition grew, or is gone: try its waiting fetches, later in this iteration."""
        woken = self._woken
        for fetch in partition.delayed_fetches:
            if not fetch.woken:
                fetch.woken = True
                if not woken:
                    self._loop.call_soon(self._run)
                woken.append(fetch)

    def cancel(self, fetch: DelayedFetch) -> None:
        """Remove a fetch whose client is gone, or that has its response."""
        if fetch.finished:
            return
        fetch.finished = True
        self.count -= 1
        for partition in fetch.partitions:
            partition.delayed_fetches.pop(fetch, None)
        if fetch.timer is not None:
            fetch.timer.cancel()
            fetch.timer = None

    def _run(self) -> None:
        woken, self._woken = self._woken, []
        for fetch in woken:
            fetch.woken = False
            if fetch.finished:
                continue
            try:
                if fetch.attempt(False):
                    self.cancel(fetch)
            except Exception:  # the others are woken, and would not be woken again (KAFKA-17240)
                log.exception("a waiting fetch failed")
                self.cancel(fetch)

    def _expire(self, fetch: DelayedFetch) -> None:
        if not fetch.finished:
            self.cancel(fetch)
            fetch.attempt(True)
