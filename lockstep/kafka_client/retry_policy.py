"""Pauses between retries, and the time after which the broker of the metadata is suspected.

Owns: `RetryPolicy`, which waits in an event loop by a `RetrySchedule`. Does not: know the operation, or
whether it may be repeated.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from lockstep.protocol.cluster_view import RetrySchedule


class SuspectsBrokers(Protocol):
    """A client that can replace the broker from which it gets metadata; `client.Client` is one."""

    def suspect(self, silent_s: float) -> None: ...


class RetryPolicy:
    """Pauses between one try and the next, until a deadline of the running loop.

    Args:
        client: its metadata broker is suspected once tries have failed for `silent_s`: a broker that is
            partitioned from the others continues to respond that there is no leader.
    """

    __slots__ = ("_client", "_schedule", "_silent_s")

    def __init__(
        self, deadline: float = float("inf"), client: SuspectsBrokers | None = None, silent_s: float = 0.0
    ) -> None:
        self._client = client
        self._silent_s = silent_s
        self._schedule = RetrySchedule(deadline, silent_s)

    @property
    def remaining_s(self) -> float:
        return self._schedule.remaining_s(asyncio.get_running_loop().time())

    async def wait_before_retry(self) -> bool:
        """Waits before the next try; returns False once the deadline is over."""
        now = asyncio.get_running_loop().time()
        pause_s = self._schedule.pause_s(now)
        if self._client is not None and self._schedule.is_stale(now):
            self._client.suspect(self._silent_s)
        if pause_s is None:
            return False
        await asyncio.sleep(pause_s)
        return True
