"""A rate over the last seconds, against its quota: how long a client must wait until it is within it again.

Pure: the time is an argument. The window has `samples` samples of `sample_ms` each; what was used stays in
its sample until that has left the window. Before there are so many, the missing ones count as empty, so a
burst of a whole window's allowance passes at first. Source: Kafka's Rate, SampledStat and QuotaUtils, whose
figures these are.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MAX_THROTTLE_MS: Final = 2**31 - 1
"""LIMIT. A response has no room for more."""


class QuotaWindow(NamedTuple):
    """The window of a quota: the settings `quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1000


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class QuotaRate:
    """See the module. Args: limit: units a second. max_throttle_ms: the longest wait."""

    __slots__ = ("_current", "_max_throttle_ms", "_samples", "_window", "limit")

    def __init__(self, limit: float, window: QuotaWindow, max_throttle_ms: int = MAX_THROTTLE_MS) -> None:
        self.limit = limit
        self._window = window
        self._max_throttle_ms = max_throttle_ms
        self._samples: list[_Sample] = []
        self._current = 0

    @property
    def burst(self) -> float:
        """The most that can be used at once without a wait for sure, where nothing else was used."""
        return self.limit * (self._window.samples - 1) * self._window.sample_ms / 1000

    def record(self, value: float, now_ms: int) -> None:
        """Count what was used; a negative value takes back what was counted at the same time."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            self._current = (self._current + 1) % (self._window.samples + 1)
            if self._current == len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def throttle_ms(self, now_ms: int) -> int:
        """Milliseconds to wait from now on; 0 within the quota."""
        total, window_ms = self._measure(now_ms)
        rate = total / (window_ms / 1000) if window_ms else 0.0
        if rate <= self.limit:
            return 0
        wait_ms = min((rate - self.limit) / self.limit * window_ms, self._max_throttle_ms)  # may be infinite
        return math.floor(wait_ms + 0.5)

    def charge(self, value: float, now_ms: int) -> int:
        """Count what was used, and return how long to wait for it."""
        self.record(value, now_ms)
        return self.throttle_ms(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """True if nothing counts any more."""
        oldest_ms = now_ms - self._window.samples * self._window.sample_ms
        return all(each.last_ms <= oldest_ms for each in self._samples)

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """The sum of what was used, and the milliseconds in which it was."""
        samples, sample_ms = self._window
        total, oldest_ms = 0.0, now_ms
        for each in self._samples:
            if now_ms - each.last_ms >= samples * sample_ms:
                each.reset(now_ms)
            total += each.value
            oldest_ms = min(oldest_ms, each.start_ms)
        window_ms = now_ms - oldest_ms
        missing = samples - 1 - window_ms // sample_ms
        return total, window_ms + max(0, missing) * sample_ms
