"""Streams to targets: when one is opened, what an answer means, when one is given up, and when all begins.

Each try has a term of its own, higher than all before it, also where a target was removed and came back. The
player itself starts where the target that is furthest behind goes on; one that could not be reached at the
first try, or does not answer in time, begins suspended, and recovers when it is there. Source: seed 000,
section 2.5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from player.core import recovery
from player.core.health import Health, Verdict
from player.core.messages import Hello
from player.core.settings import NEVER_MS, PlayerSettings
from player.core.target import Link, Target

if TYPE_CHECKING:
    from player.core.player import Player


def look(player: Player, target: Target) -> None:
    """What is due for a target by now."""
    health, now_ms = target.health, player.now_ms
    if target.link is Link.OPEN:
        owes = bool(target.queue.popped)
        verdict = health.look(owes, now_ms, player.settings)
        if verdict is Verdict.BEAT:
            if target.queue.has_sent_all:
                health.hung = 0
            player.outbox.heartbeats.append((target.name, target.term))
            recovery.proceed(player, target)  # what could not be read is tried again
        elif verdict is not Verdict.WAIT:
            health.hung += owes
            give_up(player, target, _conclusion(verdict, health, player.settings))
    elif now_ms >= health.due_ms:
        if target.link is Link.AWAY:
            _greet(player, target)
        else:
            within = f"within {player.settings.hello_timeout_ms} ms"
            give_up(player, target, f"it was not connected {within}: it, or the log, did not answer")


def _conclusion(verdict: Verdict, health: Health, settings: PlayerSettings) -> str:
    if verdict is Verdict.SILENT:
        count, what = health.silent, "nothing was heard of it"
    else:
        count, what = health.stuck, "it lives, and acknowledged nothing more of what it was sent"
    return f"{what} for {count} heartbeats of {settings.heartbeat_ms} ms"


def _greet(player: Player, target: Target) -> None:
    target.link = Link.GREETING
    target.term = player.terms[target.name] = player.terms.get(target.name, 0) + 1
    target.health.connecting(player.now_ms, player.settings)
    hello = Hello(player.log_id, player.player_term, target.term, target.first_position)
    player.outbox.hellos.append((target.name, hello))


def answered(player: Player, target: Target, position: int, first_position: int, next_position: int) -> None:
    """The target has everything up to `position`; the log has what lies from first to before next."""
    if position + 1 < first_position:
        stop(player, target, f"it needs {position + 1}, the log begins at {first_position}")
    elif position >= next_position:
        stop(player, target, f"it has stored {position}, the log ends before {next_position}")
    elif player.started:
        recovery.begin(player, target, position)
    else:
        target.link = Link.ANSWERED
        target.last_ack = position
        target.health.due_ms = NEVER_MS
        begin(player)


def begin(player: Player) -> None:
    """Start the main stream, where everybody has answered, or somebody has and the time is up."""
    if player.started:
        return
    is_late = player.now_ms >= player.start_due_ms
    waits = not is_late and any(target.may_answer for target in player.targets.values())
    reachable = [target for target in player.targets.values() if target.link is Link.ANSWERED]
    if waits or not reachable:
        return
    start_position = min(target.last_ack for target in reachable) + 1
    player.started = True
    player.current_position = start_position - 1
    player.outbox.start_position = start_position
    for target in reachable:
        recovery.begin(player, target, target.last_ack)


def leave(player: Player, target: Target, why: str = "") -> None:
    """Nothing is kept of the stream; it is closed where it may still be there."""
    if target.has_stream:
        player.outbox.close(target.name, target.term, why)
    target.link = Link.AWAY
    target.queue.suspend()


def give_up(player: Player, target: Target, why: str) -> None:
    """Close the stream, and try again in a while. `why`: in words, for an operator."""
    leave(player, target, why)
    target.health.failed(player.now_ms, player.settings, player.draw)


def stop(player: Player, target: Target, reason: str) -> None:
    """Close the stream, and try nothing more."""
    leave(player, target)
    target.link = Link.STOPPED
    target.stopped_because = reason
    target.health.stopped()
    player.outbox.stopped.append((target.name, reason))
    begin(player)  # the others may have waited for its answer
