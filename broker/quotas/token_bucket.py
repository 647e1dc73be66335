"""A token bucket that refills at a rate: a change of any size is accepted while there is no debt.

Pure: the time is an argument. A full bucket has the tokens of a whole window. Source:
Kafka's TokenBucket and ControllerMutationQuotaManager (KIP-599).
"""

from __future__ import annotations

import math

from lockstep.broker.quotas.quota_rate import MAX_THROTTLE_MS, QuotaWindow


class TokenBucket:
    """See the module. Args: limit: tokens that are added in a second."""

    __slots__ = ("_last_ms", "_tokens", "_window", "limit")

    def __init__(self, limit: float, window: QuotaWindow, now_ms: int) -> None:
        self.limit = limit
        self._window = window
        self._tokens = self._burst
        self._last_ms = now_ms

    @property
    def _burst(self) -> float:
        return self._window.samples * self._window.sample_ms / 1000 * self.limit

    def tokens(self, now_ms: int) -> float:
        """The tokens that there are now."""
        gained = self.limit * (now_ms - self._last_ms) / 1000
        self._tokens, self._last_ms = min(self._burst, self._tokens + gained), now_ms
        return self._tokens

    def record(self, value: float, now_ms: int) -> None:
        """Takes tokens; the bucket may become negative."""
        self._tokens = self.tokens(now_ms) - value

    def throttle_ms(self, now_ms: int) -> int:
        """Milliseconds until there is no debt; 0 where there is none."""
        debt = -self.tokens(now_ms)
        if debt <= 0:
            return 0
        return math.floor(min(debt / self.limit * 1000, MAX_THROTTLE_MS) + 0.5)

    def is_idle(self, now_ms: int) -> bool:
        """True if it is full."""
        return self.tokens(now_ms) >= self._burst
