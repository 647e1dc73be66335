"""Log lines about the behaviour of clients and peers, with a limit on their rate.

Owns: the rate, and when a repeated line was logged last. Invariant: a remote fills neither the log nor our
memory. Does not: know what the lines are about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final

LINES_PER_SECOND: Final = 5
"""Log lines of all kinds; the rest are counted."""
MAX_REMEMBERED: Final = 64
"""Texts with a known time of the last line; of more the oldest is forgotten."""
REPEAT_INTERVAL_SECONDS: Final = 60.0
"""Between two lines with the same key: a rejected peer comes back every second, on both its connections."""


class RateLimitedLog:
    """See the module; `clock` gives seconds and does not go back."""

    def __init__(
        self,
        clock: Callable[[], float],
        log: logging.Logger,
        lines_per_second: int = LINES_PER_SECOND,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._clock = clock
        self._log = log
        self._lines_per_second = lines_per_second
        self._max_remembered = max_remembered
        self._second = self._count = 0
        self._logged_at: dict[Hashable, float] = {}
        """The oldest first."""

    def warning(self, text: str, same: Hashable = None, failure: BaseException | None = None) -> None:
        """Logs one warning, and `failure`'s traceback. With a key `same`, other than None, only once a
        minute."""
        self._write(logging.WARNING, text, same, failure)

    def info(self, text: str, same: Hashable = None) -> None:
        """Logs one line of the level INFO, as `warning` does."""
        self._write(logging.INFO, text, same, None)

    def _write(self, level: int, text: str, same: Hashable, failure: BaseException | None) -> None:
        now = self._clock()
        if (
            same is not None
            and now - self._logged_at.get(same, now - REPEAT_INTERVAL_SECONDS) < REPEAT_INTERVAL_SECONDS
        ):
            return
        if int(now) != self._second:
            if self._count > self._lines_per_second:
                left_out = self._count - self._lines_per_second
                self._log.log(level, "%d more such lines left out", left_out)
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count > self._lines_per_second:
            return
        if same is not None:
            self._logged_at.pop(same, None)
            self._logged_at[same] = now
            if len(self._logged_at) > self._max_remembered:
                del self._logged_at[next(iter(self._logged_at))]
        self._log.log(level, "%s", text, exc_info=failure)
