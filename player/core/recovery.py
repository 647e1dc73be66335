"""Recovery of a target from the log, and the transfer to the main stream without a gap or a duplicate.

The rule: once the queue is in RF, everything of the main stream goes to the normal queue; only then is the
end of the missed range read, which is the main stream's position. So each entry is on exactly one side of it.
Where the normal queue overflows, it is dropped and the end is read again later: each time the range grows by
the entries delivered meanwhile, and no sent entry is lost, so this ends. Source: LogPlayer paper, section
2.5.2 and algorithm 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.player.core.messages import Entry, dummy
from lockstep.player.core.player_state import PlayerState
from lockstep.player.core.ready import RangeRead
from lockstep.player.core.router import route_entries
from lockstep.player.core.target import LinkState, Target
from lockstep.player.core.transitions import QueueState


def missed_range(last_ack: int, current_position: int) -> tuple[int, int]:
    """First and last position that a target has missed; the range is empty where first is above last."""
    return last_ack + 1, current_position


def begin(player: PlayerState, target: Target, position: int) -> None:
    """Start recovery of a target that has stored everything up to `position`: all of this is one step."""
    target.link = LinkState.OPEN
    target.health.on_connected(player.now_ms, player.settings)
    target.writing = target.fetching = target.dropped = False
    target.last_ack = position
    target.queue.resume(position)
    first, target.end_position = missed_range(position, player.current_position)
    target.fetched_position = first - 1
    advance(player, target)


def advance(player: PlayerState, target: Target) -> None:
    """Fetch more while there is room; complete the recovery, or extend it, once all is read."""
    queue = target.queue
    if queue.state is not QueueState.RECOVERY_FETCHING or target.fetching:
        return
    if target.fetched_position >= target.end_position and target.dropped:
        target.dropped = False
        target.end_position = player.current_position
    if target.fetched_position >= target.end_position:
        if queue.missed_position < target.end_position:
            queue.catchup.append(dummy(target.end_position))
        queue.complete_fetching()
    elif not queue.catchup.is_full(player.settings.catchup):
        target.fetching = True
        player.outbox.fetches.append(
            RangeRead(
                target.name,
                target.term,
                target.fetched_position + 1,
                target.end_position,
                player.settings.batch.size_bytes,
            )
        )


def on_fetched(player: PlayerState, target: Target, entries: Sequence[Entry], through_position: int) -> bool:
    """Queue the result of a RangeRead: all from its first position to `through_position`. True if it was
    progress; otherwise the next heartbeat fetches again."""
    first, last = target.fetched_position + 1, min(through_position, target.end_position)
    found = route_entries(player.route, [entry for entry in entries if first <= entry.position <= last])
    target.fetching = False
    for parts in found:
        for name, part in parts:
            if name == target.name:
                target.queue.catchup.append(part)
    if last < first:
        return False
    target.fetched_position = last
    advance(player, target)
    return True


def on_overflow(player: PlayerState, target: Target) -> None:
    """The normal queue overflows during recovery: drop it, and read its entries again later."""
    target.dropped = True
    target.queue.drop_normal()
    advance(player, target)
