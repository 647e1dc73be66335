"""The status of a driver for an operator: snapshots, read from the core's attributes.

Owns: the names and units of a status. Does not: render it, or keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.player.core.player import Player
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.core.target import LinkState, Target


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target of a log."""

    name: str
    address: str
    link: str
    """A value of `lockstep.player.core.target.LinkState`: not connected, greeted, answered, open, stopped."""
    state: str
    """Of its queue: N, RF, FC or S."""
    target_term: int
    """Of its newest stream; 0 before the first."""
    last_ack: int
    """It has stored everything up to there; -1 where nothing is known of it."""
    lag: int
    """Positions between that and what the main stream has read."""
    waiting_entries: int
    waiting_bytes: int
    """From the main stream, and from a recovery."""
    unacknowledged_entries: int
    unacknowledged_bytes: int
    recovery_end_position: int | None
    """Where its recovery ends; None where it has none."""
    overflows: int
    """How often in a row too much was waiting."""
    cannot_keep_up: bool
    hung: int
    """Streams in a row given up because it acknowledged nothing of what it was sent."""
    failures: int
    """Streams in a row that came to nothing."""
    stopped_because: str
    closed_because: str
    """Why its last stream ended, or was given up; empty once the next one has come to something."""


@dataclass(frozen=True, slots=True)
class PlayerStatus:
    """One log and its targets."""

    log_id: str
    topic: str
    partition: int
    """-1 where the log is several."""
    log_group: int | None
    """Its number, where the log is a topic's partitions of one."""
    player_term: int
    started: bool
    current_position: int
    """The main stream has read everything up to there."""
    unrouted: int
    """Parts for targets that there are not."""
    ended_because: str
    targets: Sequence[TargetStatus]


def target_status(
    target: Target, address: str, closed_because: str, core: Player, settings: PlayerSettings
) -> TargetStatus:
    """One target of `core`, as it is now."""
    queue, health = target.queue, target.health
    is_well = target.link is LinkState.OPEN and not health.failures and not health.timed_out_streams
    is_recovering = target.link is LinkState.OPEN and target.fetched_position < target.end_position
    return TargetStatus(
        name=target.name,
        address=address,
        link=target.link.value,
        state=queue.state.value,
        target_term=target.term,
        last_ack=target.last_ack,
        lag=max(0, core.current_position - target.last_ack),
        waiting_entries=len(queue.normal) + len(queue.catchup),
        waiting_bytes=queue.normal.size_bytes + queue.catchup.size_bytes,
        unacknowledged_entries=queue.popped_entries,
        unacknowledged_bytes=queue.popped_bytes,
        recovery_end_position=target.end_position if is_recovering else None,
        overflows=target.overflows,
        cannot_keep_up=target.overflows >= settings.slow_overflows,
        hung=health.timed_out_streams,
        failures=health.failures,
        stopped_because=target.stopped_because,
        closed_because="" if is_well else closed_because,
    )
