"""How a target gets what it has missed, and how both streams meet without a hole or a doubled entry.

The rule: once the queue is in RF, everything the main stream brings goes to the normal queue; only then is
the end of what was missed read, which is where the main stream stands. So each entry is on exactly one side
of it. Where too much waits, all that is on the far side is dropped and the end read again, later: each time
the step grows by what has been played meanwhile, and nothing that was sent is lost, so this does not run in
circles. Source: seed 000, section 2.5.2 and algorithm 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from player.core.messages import Entry, dummy
from player.core.ready import Fetch
from player.core.routing import routed
from player.core.target import Link, Target
from player.core.transitions import State

if TYPE_CHECKING:
    from player.core.player import Player


def missed(last_ack: int, current_position: int) -> tuple[int, int]:
    """First and last position of what a target has missed; nothing where the first is above the last."""
    return last_ack + 1, current_position


def begin(player: Player, target: Target, position: int) -> None:
    """The target has answered that it has everything up to `position`: all of this is one step."""
    target.link = Link.OPEN
    target.health.connected(player.now_ms, player.settings)
    target.writing = target.fetching = target.dropped = False
    target.last_ack = position
    target.queue.resume(position)
    first, target.end_position = missed(position, player.current_position)
    target.fetched_position = first - 1
    proceed(player, target)


def proceed(player: Player, target: Target) -> None:
    """Ask for more where there is room for it; complete the recovery, or extend it, where all is read."""
    queue = target.queue
    if queue.state is not State.RECOVERY_FETCHING or target.fetching:
        return
    if target.fetched_position >= target.end_position and target.dropped:
        target.dropped = False
        target.end_position = player.current_position
    if target.fetched_position >= target.end_position:
        if queue.missed_position < target.end_position:
            queue.catchup.append(dummy(target.end_position))
        queue.fetching_completed()
    elif not queue.catchup.is_full(player.settings.catchup):
        target.fetching = True
        player.outbox.fetches.append(
            Fetch(
                target.name,
                target.term,
                target.fetched_position + 1,
                target.end_position,
                player.settings.batch.size_bytes,
            )
        )


def fetched(player: Player, target: Target, entries: Sequence[Entry], through_position: int) -> bool:
    """The answer to a Fetch: everything from its first position to `through_position`. Whether that is more
    than was known; otherwise the next heartbeat asks again."""
    first, last = target.fetched_position + 1, min(through_position, target.end_position)
    found = routed(player.route, [entry for entry in entries if first <= entry.position <= last])
    target.fetching = False
    for parts in found:
        for name, part in parts:
            if name == target.name:
                target.queue.catchup.append(part)
    if last < first:
        return False
    target.fetched_position = last
    proceed(player, target)
    return True


def overflowed(player: Player, target: Target) -> None:
    """More waits behind the recovery than may: read that again later."""
    target.dropped = True
    target.queue.drop_normal()
    proceed(player, target)
