"""Contention back-off: the pause of a client before the first try of its next transaction.

With many clients at one lock, the last winner is ready first again, and would win again and again. So a
client whose appends are often rejected waits, before it executes a new transaction, for up to as long as its
recent tries took; a rejected one is executed again at once. Without rejections there is no pause.

Pure: chance and time are arguments. Measured by `python -m bench contention`.
"""

from __future__ import annotations

from typing import Final

WEIGHT: Final = 0.1
"""The weight of the newest transaction in the averages."""
MIN_REJECTIONS: Final = 0.3
"""Rejections per success below which no client waits."""
MAX_PAUSE_S: Final = 0.1


class ContentionBackoff:
    """The averages of one client's recent transactions."""

    __slots__ = ("_refusals", "_try_s")

    def __init__(self) -> None:
        self._refusals = 0.0
        """The average number of rejections per transaction."""
        self._try_s = 0.0
        """The average time of an attempt: from the first execution to the end, divided by the attempts."""

    def record(self, tries: int, seconds: float) -> None:
        """A transaction was appended, or has failed, after so many attempts."""
        self._refusals += (tries - 1 - self._refusals) * WEIGHT
        self._try_s += (seconds / tries - self._try_s) * WEIGHT

    def pause_s(self, chance: float) -> float:
        """Returns the pause before a new transaction. Args: chance: a random number from 0 to 1."""
        if self._refusals < MIN_REJECTIONS:
            return 0.0
        return min(MAX_PAUSE_S, chance * self._refusals * self._try_s)
