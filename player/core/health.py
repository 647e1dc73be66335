"""Failure detection for one target, and the backoff before the next try: functions of a given time.

Heartbeats are counted, not time: a player that was delayed itself has unread responses. A target that
is stopped (SIGSTOP) sends nothing; one that hangs in its store responds, and acknowledges nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from lockstep.player.core.settings import NEVER_MS, PlayerSettings

MAX_DOUBLINGS = 6
"""Bounds how far the timeouts of a target that hangs, or has a slow link, are doubled."""


class HealthVerdict(Enum):
    """The result of a health check of a connected target."""

    WAIT = "nothing is due"
    BEAT = "send it a heartbeat"
    SILENT = "it does not answer"
    STUCK = "it acknowledges nothing"


def backoff_ms(failures: int, settings: PlayerSettings, random: Callable[[int], int]) -> int:
    """The pause after `failures` failures in a row: doubled each time, half of it random."""
    max_ms = min(settings.backoff_ms << min(failures - 1, 32), settings.longest_backoff_ms)
    return max_ms // 2 + random(max_ms // 2 + 1)


class Health:
    """One target's health. `due_ms`: the next connection attempt, the handshake's timeout, or a heartbeat."""

    __slots__ = ("due_ms", "failures", "hung", "progressed", "received", "silent", "stuck")

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms
        self.failures = 0
        """Streams in a row that ended without a new acknowledgement, though some was due."""
        self.hung = 0
        """Streams aborted as stuck, or as silent with unacknowledged entries, since the last
        acknowledgement, or since nothing was unacknowledged."""
        self.received = False
        self.progressed = False
        self.silent = 0
        """Heartbeats in a row before each of which nothing was received since the one before."""
        self.stuck = 0
        """Heartbeats in a row with unacknowledged entries and no new acknowledgement since the one before."""

    def on_failure(self, now_ms: int, settings: PlayerSettings, random: Callable[[int], int]) -> None:
        """The stream ended: try again after a while."""
        self.failures += 1
        self.due_ms = now_ms + backoff_ms(self.failures, settings, random)

    def on_connecting(self, now_ms: int, settings: PlayerSettings) -> None:
        self.due_ms = now_ms + settings.hello_timeout_ms

    def on_connected(self, now_ms: int, settings: PlayerSettings) -> None:
        self.due_ms = now_ms + settings.heartbeat_ms
        self.received = self.progressed = True
        self.silent = self.stuck = 0

    def on_stopped(self) -> None:
        """Schedules no further attempt."""
        self.due_ms = NEVER_MS

    def on_acknowledged(self) -> None:
        """It has stored something more."""
        self.progressed = True
        self.failures = self.hung = 0

    def check(self, has_unacknowledged: bool, now_ms: int, settings: PlayerSettings) -> HealthVerdict:
        """Counts a heartbeat that is due. `has_unacknowledged`: some sent entries are not acknowledged."""
        if now_ms < self.due_ms:
            return HealthVerdict.WAIT
        self.due_ms = now_ms + settings.heartbeat_ms
        self.silent = 0 if self.received else self.silent + 1
        self.stuck = 0 if self.progressed or not has_unacknowledged else self.stuck + 1
        if self.received and not has_unacknowledged:
            self.failures = 0
        self.received = self.progressed = False
        doublings = min(self.hung, MAX_DOUBLINGS)
        # on a slow link a heartbeat is behind a batch, which would go out for ever, and never arrive
        if self.silent >= settings.silent_heartbeats << (doublings if has_unacknowledged else 0):
            return HealthVerdict.SILENT
        if self.stuck >= settings.stuck_heartbeats << doublings:
            return HealthVerdict.STUCK
        return HealthVerdict.BEAT
