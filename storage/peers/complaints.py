"""What peers and strangers do, as log lines that are few enough to be read.

Owns: how often something is said. Invariant: whoever is on the other side fills neither the log nor our
memory. Does not: know what there is to complain about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final

from storage.peers.limits import COMPLAINTS_PER_SECOND, MOST_COMPLAINTS

log_of_peers = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""Between two lines about the same, where who complains says that it is: a peer that is refused comes back
every second, on both its connections."""


class Complaints:
    """See the module; `clock` gives seconds and does not go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = self._count = 0
        self._said: dict[Hashable, float] = {}
        """The oldest first."""

    def say(self, text: str, same: Hashable = None) -> None:
        """One line. What has the same `same`, other than None, is said once a minute."""
        now = self._clock()
        if same is not None and now - self._said.get(same, now - AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count > COMPLAINTS_PER_SECOND:
            return
        if same is not None:
            self._said.pop(same, None)
            self._said[same] = now
            if len(self._said) > MOST_COMPLAINTS:
                del self._said[next(iter(self._said))]
        log_of_peers.warning("%s", text)
