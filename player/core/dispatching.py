"""From entries to targets: the main stream, dummies, and what is sent next.

Invariants: a dummy goes the way of the entries, behind all that is queued for its target, and only where
nothing at its position is; a target that leaves too much waiting holds up nobody else. Source: seed 000,
algorithms 3 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from player.core import connecting, recovery
from player.core.messages import Entry, dummy
from player.core.routing import routed
from player.core.target import Target
from player.core.transitions import State

if TYPE_CHECKING:
    from player.core.player import Player


def feed(player: Player, entries: Sequence[Entry], through_position: int) -> None:
    """What the main stream has read: everything after the current position up to `through_position`."""
    before = player.current_position
    if through_position <= before:
        return
    fresh = [entry for entry in entries if before < entry.position <= through_position]
    for parts in routed(player.route, fresh):  # where this raises, nothing has happened
        for name, part in parts:
            target = player.targets.get(name)
            if target is None:
                if not player.unrouted:
                    player.outbox.unrouted = name
                player.unrouted += 1
            else:
                target.push(part)
    player.current_position = through_position
    player.since_dummies += len(fresh)
    if 0 < player.settings.dummy_every <= player.since_dummies:
        player.since_dummies = 0
        push_dummies(player)
    for target in player.targets.values():
        send_next(player, target)
        _bound(player, target)


def push_dummies(player: Player) -> None:
    """Targets that have acknowledged nothing for a while need not read all of that again after a crash."""
    position = player.current_position
    for target in player.targets.values():
        is_behind = target.last_ack <= position - player.settings.dummy_every
        if is_behind and target.takes_main_stream and target.queue.newest_position < position:
            target.queue.normal.append(dummy(position))


def push_quiet_dummy(player: Player, target: Target) -> None:
    """Of a look at it: the main stream is ahead of this target's mark, and nothing has come for it for long.

    However much comes for others: once retention has deleted that, the target would seem to lack something.
    """
    queue, settings, position = target.queue, player.settings, player.current_position
    if not settings.dummy_every or not settings.quiet_ms or queue.state is not State.NORMAL:
        return
    if queue.popped or queue.has_waiting:  # what waits is sent first: one more could be too much
        return
    if queue.sent_position >= position or target.quiet_position != queue.sent_position:
        target.quiet_position, target.quiet_since_ms = queue.sent_position, player.now_ms
    elif player.now_ms - target.quiet_since_ms >= settings.quiet_ms:
        queue.normal.append(dummy(position))
        send_next(player, target)


def send_next(player: Player, target: Target) -> None:
    """The next batch, where the stream can take one, there is one, and not too much is unacknowledged."""
    queue, settings = target.queue, player.settings
    if not target.writing and queue.has_waiting:
        entries = settings.window.entries - queue.popped_entries
        size_bytes = settings.window.size_bytes - queue.popped_bytes
        if entries > 0 and size_bytes > 0:
            batch = queue.next_batch(
                min(entries, settings.batch.entries), min(size_bytes, settings.batch.size_bytes)
            )
            if batch is not None:
                target.writing = True
                player.outbox.batches.append((target.name, target.term, batch))
    recovery.proceed(player, target)


def acknowledged(player: Player, target: Target, position: int) -> None:
    """The target has stored everything up to `position`."""
    target.health.heard = True
    queue = target.queue
    if position > queue.sent_position:
        reason = f"it acknowledged {position}, it was sent up to {queue.sent_position}"
        connecting.stop(player, target, reason)
        return
    if position <= target.last_ack:
        return
    target.last_ack = position
    target.health.acknowledged()
    queue.erase(position)
    send_next(player, target)
    if queue.state is State.NORMAL and not queue.popped:
        target.overflows = 0


def _bound(player: Player, target: Target) -> None:
    if not target.queue.normal.exceeds(player.settings.normal):
        return
    target.overflows += 1
    if target.queue.state is State.NORMAL:
        most = player.settings.normal
        why = f"more was waiting for it than {most.entries} entries or {most.size_bytes} bytes"
        connecting.give_up(player, target, why)
    else:
        recovery.overflowed(player, target)
