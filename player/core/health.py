"""Whether a target is alive and gets on, and when to try it again: functions of the time they are given.

Heartbeats are counted, not time: a player that was held up itself has answers that it has not read. A target
that stopped (SIGSTOP) is not heard; one that hangs in its store is heard, and acknowledges nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from player.core.settings import NEVER_MS, PlayerSettings

MOST_DOUBLINGS = 6
"""Of the patience with a target that hangs, or is at the end of a slow link."""


class Verdict(Enum):
    """What a look at a connected target says."""

    WAIT = "nothing is due"
    BEAT = "send it a heartbeat"
    SILENT = "it does not answer"
    STUCK = "it acknowledges nothing"


def backoff_ms(failures: int, settings: PlayerSettings, draw: Callable[[int], int]) -> int:
    """How long to wait after so many failures in a row: doubled each time, then half of it drawn."""
    longest = min(settings.backoff_ms << min(failures - 1, 32), settings.longest_backoff_ms)
    return longest // 2 + draw(longest // 2 + 1)


class Health:
    """One target's. Due are: a try to connect, the answer to its handshake, or the next heartbeat."""

    __slots__ = ("due_ms", "failures", "heard", "hung", "progressed", "silent", "stuck")

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms
        self.failures = 0
        """Streams in a row that ended before anything more was acknowledged, or nothing more was to be."""
        self.hung = 0
        """Streams given up as stuck, or as silent while something was owed, since anything was acknowledged,
        or nothing more was to be."""
        self.heard = False
        self.progressed = False
        self.silent = 0
        """How many heartbeats in a row found that nothing was heard since the one before."""
        self.stuck = 0
        """How many found something unacknowledged, and no more acknowledged than at the one before."""

    def failed(self, now_ms: int, settings: PlayerSettings, draw: Callable[[int], int]) -> None:
        """The stream ended: try again after a while."""
        self.failures += 1
        self.due_ms = now_ms + backoff_ms(self.failures, settings, draw)

    def connecting(self, now_ms: int, settings: PlayerSettings) -> None:
        self.due_ms = now_ms + settings.hello_timeout_ms

    def connected(self, now_ms: int, settings: PlayerSettings) -> None:
        self.due_ms = now_ms + settings.heartbeat_ms
        self.heard = self.progressed = True
        self.silent = self.stuck = 0

    def stopped(self) -> None:
        """Nothing more is tried."""
        self.due_ms = NEVER_MS

    def acknowledged(self) -> None:
        """It has stored something more."""
        self.progressed = True
        self.failures = self.hung = 0

    def look(self, owes: bool, now_ms: int, settings: PlayerSettings) -> Verdict:
        """With each heartbeat. `owes`: something was sent and is not acknowledged."""
        if now_ms < self.due_ms:
            return Verdict.WAIT
        self.due_ms = now_ms + settings.heartbeat_ms
        self.silent = 0 if self.heard else self.silent + 1
        self.stuck = 0 if self.progressed or not owes else self.stuck + 1
        if self.heard and not owes:
            self.failures = 0
        self.heard = self.progressed = False
        doublings = min(self.hung, MOST_DOUBLINGS)
        # on a slow link a heartbeat is behind a batch, which would go out for ever, and never arrive
        if self.silent >= settings.silent_heartbeats << (doublings if owes else 0):
            return Verdict.SILENT
        if self.stuck >= settings.stuck_heartbeats << doublings:
            return Verdict.STUCK
        return Verdict.BEAT
