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
    """The state of its queue: N, RF, FC or S."""
    target_term: int
    """The term of its newest stream; 0 before the first."""
    last_ack: int
    """The position up to which it has stored everything; -1 for an unknown one."""
    lag: int
    """The positions between that and the end of the main stream's reads."""
    waiting_entries: int
    waiting_bytes: int
    """The queued bytes from the main stream and from a recovery."""
    unacknowledged_entries: int
    unacknowledged_bytes: int
    recovery_end_position: int | None
    """The end of its recovery; None without one."""
    overflows: int
    """The number of queue overflows in a row."""
    cannot_keep_up: bool
    hung: int
    """The number of streams in a row that were closed because it acknowledged nothing."""
    failures: int
    """The number of streams in a row without an acknowledgement."""
    stopped_because: str
    closed_because: str
    """The reason why its last stream ended; empty once a later one has acknowledged."""


@dataclass(frozen=True, slots=True)
class PlayerStatus:
    """One log and its targets."""

    log_id: str
    topic: str
    partition: int
    """-1 where the log is several partitions."""
    log_group: int | None
    """The log group's id, where the log is a topic's partitions in one group."""
    player_term: int
    started: bool
    current_position: int
    """The position up to which the main stream has read."""
    unrouted: int
    """The number of parts for unknown targets."""
    ended_because: str
    targets: Sequence[TargetStatus]


def target_status(
    target: Target, address: str, closed_because: str, core: Player, settings: PlayerSettings
) -> TargetStatus:
    """Returns the present status of one target of `core`."""
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
