"""Pauses between retries, and the time to suspect the broker that is requested metadata.

Owns: `RetryPolicy`. Does not: know the operation, or whether it may be repeated.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4)


class SuspectsBrokers(Protocol):
    """A client that can leave the broker that it asks about all others; `lockstep.client.Client` is one."""

    def suspect(self, silent_s: float) -> None: ...


class RetryPolicy:
    """Pauses between one try and the next, until a deadline of the running loop.

    Args:
        client: whoever it asks about all others is suspected while tries have failed for `silent_s`: a broker
            that is cut off from the others continues answering that nobody leads.
    """

    __slots__ = ("_client", "_count", "_deadline", "_failing_since", "_silent_s")

    def __init__(
        self, deadline: float = float("inf"), client: SuspectsBrokers | None = None, silent_s: float = 0.0
    ) -> None:
        self._deadline = deadline
        self._client = client
        self._silent_s = silent_s
        self._failing_since = 0.0
        self._count = 0

    @property
    def remaining_s(self) -> float:
        return max(0.001, self._deadline - asyncio.get_running_loop().time())

    async def again(self) -> bool:
        """Wait a little; False where the time is over."""
        now = asyncio.get_running_loop().time()
        if not self._count:
            self._failing_since = now
        pause_s = PAUSES_S[min(self._count, len(PAUSES_S) - 1)]
        self._count += 1
        if self._client is not None and now - self._failing_since >= self._silent_s:
            self._client.suspect(self._silent_s)
        if now + pause_s >= self._deadline:
            return False
        await asyncio.sleep(pause_s)
        return True
