"""From entries to targets: the main stream, dummies, and the next batch of a target.

A dummy is a part without payload, which only moves its target's position (LogPlayer's dummy messages).
Invariants: a dummy is queued behind all entries of its target, and only where no entry has its position; a
target whose queue is full delays no other target. Source: LogPlayer paper, algorithms 3 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.player.core import connections, recovery
from lockstep.player.core.messages import Entry, dummy
from lockstep.player.core.player_state import PlayerState
from lockstep.player.core.router import route_entries
from lockstep.player.core.target import Target
from lockstep.player.core.transitions import QueueState


def queue_chunk(player: PlayerState, entries: Sequence[Entry], through_position: int) -> None:
    """Queue a chunk of the main stream: everything after the current position up to `through_position`."""
    before = player.current_position
    if through_position <= before:
        return
    fresh = [entry for entry in entries if before < entry.position <= through_position]
    for parts in route_entries(player.route, fresh):  # where this raises, nothing has changed
        for name, part in parts:
            target = player.targets.get(name)
            if target is None:
                if not player.unrouted:
                    player.outbox.unrouted = name
                player.unrouted += 1
            else:
                target.push(part)
    player.current_position = through_position
    player.entries_since_dummies += len(fresh)
    if 0 < player.settings.dummy_every <= player.entries_since_dummies:
        player.entries_since_dummies = 0
        push_dummies(player)
    for target in player.targets.values():
        send_next(player, target)
        _handle_overflow(player, target)


def push_dummies(player: PlayerState) -> None:
    """Move the positions of targets that have acknowledged nothing for long, to keep their recovery short."""
    position = player.current_position
    for target in player.targets.values():
        is_behind = target.last_ack <= position - player.settings.dummy_every
        if is_behind and target.accepts_main_stream and target.queue.newest_position < position:
            target.queue.normal.append(dummy(position))


def push_quiet_dummy(player: PlayerState, target: Target) -> None:
    """Queue a dummy for a target that has had no entry for `quiet_ms` while the main stream is ahead of it.

    Without the dummy the target's position would stay behind while retention deletes other targets' entries:
    the player could not distinguish them from entries that this target has missed.
    """
    queue, settings, position = target.queue, player.settings, player.current_position
    if not settings.dummy_every or not settings.quiet_ms or queue.state is not QueueState.NORMAL:
        return
    if queue.popped or queue.has_waiting:
        return  # queued entries are sent first: another dummy could overflow the queue
    if queue.sent_position >= position or target.quiet_position != queue.sent_position:
        target.quiet_position, target.quiet_since_ms = queue.sent_position, player.now_ms
    elif player.now_ms - target.quiet_since_ms >= settings.quiet_ms:
        queue.normal.append(dummy(position))
        send_next(player, target)


def send_next(player: PlayerState, target: Target) -> None:
    """Send the next batch if the stream is writable, entries are queued and the window is open."""
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
    recovery.advance(player, target)


def on_acknowledged(player: PlayerState, target: Target, position: int) -> None:
    """The target has stored everything up to `position`."""
    target.health.received = True
    queue = target.queue
    if position > queue.sent_position:
        reason = f"it acknowledged {position}, it was sent up to {queue.sent_position}"
        connections.stop(player, target, reason)
        return
    if position <= target.last_ack:
        return
    target.last_ack = position
    target.health.on_acknowledged()
    queue.erase(position)
    send_next(player, target)
    if queue.state is QueueState.NORMAL and not queue.popped:
        target.overflows = 0


def _handle_overflow(player: PlayerState, target: Target) -> None:
    """Aborts the stream of a target whose queue exceeds its bound; in recovery drops the queue."""
    if not target.queue.normal.exceeds(player.settings.normal):
        return
    target.overflows += 1
    if target.queue.state is QueueState.NORMAL:
        bound = player.settings.normal
        why = f"more than {bound.entries} entries or {bound.size_bytes} bytes were queued for it"
        connections.abort(player, target, why)
    else:
        recovery.on_overflow(player, target)
