"""Failure detection for one target, and the backoff before the next attempt: functions of a given time.

Heartbeats are counted, not time: a player that was delayed itself has unread responses. A target that
is stopped (SIGSTOP) sends nothing; one that hangs in its store responds, and acknowledges nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from lockstep.player.core.settings import NEVER_MS, PlayerSettings

MAX_DOUBLINGS = 6
"""Bounds the doubling of the timeouts of a target that hangs, or has a slow link."""


class HealthVerdict(Enum):
    """The result of a health check of a connected target."""

    WAIT = "nothing is due"
    HEARTBEAT = "send it a heartbeat"
    NO_RESPONSE = "it does not respond"
    NO_PROGRESS = "it acknowledges nothing"


def backoff_ms(failures: int, settings: PlayerSettings, random: Callable[[int], int]) -> int:
    """The pause after `failures` failures in a row: doubled each time, half of it random."""
    max_ms = min(settings.backoff_ms << min(failures - 1, 32), settings.longest_backoff_ms)
    return max_ms // 2 + random(max_ms // 2 + 1)


class Health:
    """One target's health: its failures, and the heartbeats of its stream."""

    __slots__ = (
        "failures",
        "heartbeats_without_message",
        "heartbeats_without_progress",
        "next_event_ms",
        "progressed",
        "received",
        "timed_out_streams",
    )

    def __init__(self, now_ms: int) -> None:
        self.next_event_ms = now_ms
        """The time of the next event, by the state of the stream: without one, the next connection attempt;
        during the handshake, its timeout; then, the next heartbeat. NEVER_MS once stopped."""
        self.failures = 0
        """Streams in a row that ended without a new acknowledgement, though some was due."""
        self.timed_out_streams = 0
        """Streams aborted with unacknowledged entries, by either timeout, since the last
        acknowledgement, or since nothing was unacknowledged."""
        self.received = False
        """Whether a message was received since the last heartbeat."""
        self.progressed = False
        """Whether further entries were acknowledged since the last heartbeat."""
        self.heartbeats_without_message = 0
        """Heartbeats in a row before each of which nothing was received since the one before."""
        self.heartbeats_without_progress = 0
        """Heartbeats in a row with unacknowledged entries and no new acknowledgement since the one before."""

    def on_failure(self, now_ms: int, settings: PlayerSettings, random: Callable[[int], int]) -> None:
        """The stream ended: the next attempt is after the backoff."""
        self.failures += 1
        self.next_event_ms = now_ms + backoff_ms(self.failures, settings, random)

    def on_connecting(self, now_ms: int, settings: PlayerSettings) -> None:
        self.next_event_ms = now_ms + settings.hello_timeout_ms

    def on_connected(self, now_ms: int, settings: PlayerSettings) -> None:
        self.next_event_ms = now_ms + settings.heartbeat_ms
        self.received = self.progressed = True
        self.heartbeats_without_message = self.heartbeats_without_progress = 0

    def on_stopped(self) -> None:
        """Schedules no further attempt."""
        self.next_event_ms = NEVER_MS

    def on_acknowledged(self) -> None:
        """The target has acknowledged further entries."""
        self.progressed = True
        self.failures = self.timed_out_streams = 0

    def count_heartbeat(
        self, has_unacknowledged: bool, now_ms: int, settings: PlayerSettings
    ) -> HealthVerdict:
        """Counts a heartbeat that is due, sets the time of the next one, and returns what follows; WAIT, and
        no change, where none is due. `has_unacknowledged`: some sent entries are not acknowledged."""
        if now_ms < self.next_event_ms:
            return HealthVerdict.WAIT
        self.next_event_ms = now_ms + settings.heartbeat_ms
        self.heartbeats_without_message = 0 if self.received else self.heartbeats_without_message + 1
        self.heartbeats_without_progress = (
            0 if self.progressed or not has_unacknowledged else self.heartbeats_without_progress + 1
        )
        if self.received and not has_unacknowledged:
            self.failures = 0
        self.received = self.progressed = False
        doublings = min(self.timed_out_streams, MAX_DOUBLINGS)
        # on a slow link a heartbeat waits behind a batch, which an aborted stream would send again for ever
        if self.heartbeats_without_message >= settings.silent_heartbeats << (
            doublings if has_unacknowledged else 0
        ):
            return HealthVerdict.NO_RESPONSE
        if self.heartbeats_without_progress >= settings.stuck_heartbeats << doublings:
            return HealthVerdict.NO_PROGRESS
        return HealthVerdict.HEARTBEAT
