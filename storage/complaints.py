"""What clients, peers and strangers do, as log lines that are few enough to be read.

Owns: how often something is said. Invariant: whoever is on the other side fills neither the log nor our
memory. Does not: know what there is to complain about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final

COMPLAINTS_PER_SECOND: Final = 5
"""Log lines, whatever they say; the rest are counted."""
MOST_COMPLAINTS: Final = 64
"""Of which it is known when they were said last; of more the oldest is forgotten."""
AGAIN_SECONDS: Final = 60.0
"""Between two lines about the same, where who complains says that it is: a peer that is refused comes back
every second, on both its connections."""


class Complaints:
    """See the module; `clock` gives seconds and does not go back."""

    def __init__(self, clock: Callable[[], float], log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._second = self._count = 0
        self._said: dict[Hashable, float] = {}
        """The oldest first."""

    def say(self, text: str, same: Hashable = None, failure: BaseException | None = None) -> None:
        """One line, and `failure`'s traceback. The same `same`, other than None, is said once a minute."""
        now = self._clock()
        if same is not None and now - self._said.get(same, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if int(now) != self._second:
            if self._count > COMPLAINTS_PER_SECOND:
                self._log.warning("%d more such lines left out", self._count - COMPLAINTS_PER_SECOND)
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count > COMPLAINTS_PER_SECOND:
            return
        if same is not None:
            self._said.pop(same, None)
            self._said[same] = now
            if len(self._said) > MOST_COMPLAINTS:
                del self._said[next(iter(self._said))]
        self._log.warning("%s", text, exc_info=failure)
