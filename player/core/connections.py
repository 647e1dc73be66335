"""The life of streams to targets: opening, the handshake, aborts, and the start of the main stream.

Each attempt has a term of its own, higher than all before it, also where a target was removed and came back.
The main stream starts at the position of the target that is furthest behind. A target that is unreachable at
the first attempt, or does not respond in time, starts suspended and recovers once it is connected.
Source: LogPlayer paper, section 2.5.1.
"""

from __future__ import annotations

from lockstep.player.core import recovery
from lockstep.player.core.health import Health, HealthVerdict
from lockstep.player.core.messages import Hello
from lockstep.player.core.player_state import PlayerState
from lockstep.player.core.settings import NEVER_MS, PlayerSettings
from lockstep.player.core.target import LinkState, Target


def check(player: PlayerState, target: Target) -> None:
    """Does everything that is due for a target."""
    health, now_ms = target.health, player.now_ms
    if target.link is LinkState.OPEN:
        has_unacknowledged = bool(target.queue.popped)
        verdict = health.count_heartbeat(has_unacknowledged, now_ms, player.settings)
        if verdict is HealthVerdict.HEARTBEAT:
            if target.queue.has_sent_all:
                health.timed_out_streams = 0
            player.outbox.heartbeats.append((target.name, target.term))
            recovery.advance(player, target)  # a failed read is repeated
        elif verdict is not HealthVerdict.WAIT:
            health.timed_out_streams += has_unacknowledged
            abort(player, target, _timeout_reason(verdict, health, player.settings))
    elif now_ms >= health.next_event_ms:
        if target.link is LinkState.DISCONNECTED:
            _send_hello(player, target)
        else:
            within = f"within {player.settings.hello_timeout_ms} ms"
            abort(player, target, f"it was not connected {within}: it, or the log, did not respond")


def _timeout_reason(verdict: HealthVerdict, health: Health, settings: PlayerSettings) -> str:
    if verdict is HealthVerdict.NO_RESPONSE:
        count, what = health.heartbeats_without_message, "it sent nothing"
    else:
        count, what = health.heartbeats_without_progress, "it responds, and acknowledged no further entry"
    return f"{what} for {count} heartbeats of {settings.heartbeat_ms} ms"


def _send_hello(player: PlayerState, target: Target) -> None:
    target.link = LinkState.HANDSHAKE
    target.term = player.terms[target.name] = player.terms.get(target.name, 0) + 1
    target.health.on_connecting(player.now_ms, player.settings)
    hello = Hello(player.log_id, player.player_term, target.term, target.first_position)
    player.outbox.hellos.append((target.name, hello))


def on_greeted(
    player: PlayerState, target: Target, position: int, first_position: int, next_position: int
) -> None:
    """The target has everything up to `position`; the log reaches from `first_position` to before
    `next_position`."""
    if position + 1 < first_position:
        stop(player, target, f"it needs {position + 1}, the log begins at {first_position}")
    elif position >= next_position:
        stop(player, target, f"it has stored {position}, the log ends before {next_position}")
    elif player.started:
        recovery.begin(player, target, position)
    else:
        target.link = LinkState.ANSWERED
        target.last_ack = position
        target.health.next_event_ms = NEVER_MS
        begin(player)


def begin(player: PlayerState) -> None:
    """Start the main stream once all targets have responded, or at the timeout once one has."""
    if player.started:
        return
    is_late = player.now_ms >= player.start_due_ms
    waits = not is_late and any(target.awaits_first_connection for target in player.targets.values())
    reachable = [target for target in player.targets.values() if target.link is LinkState.ANSWERED]
    if waits or not reachable:
        return
    start_position = min(target.last_ack for target in reachable) + 1
    player.started = True
    player.current_position = start_position - 1
    player.outbox.start_position = start_position
    for target in reachable:
        recovery.begin(player, target, target.last_ack)


def close(player: PlayerState, target: Target, why: str = "") -> None:
    """Close the stream where it may still be open, and suspend the queue."""
    if target.has_stream:
        player.outbox.close(target.name, target.term, why)
    target.link = LinkState.DISCONNECTED
    target.queue.suspend()


def abort(player: PlayerState, target: Target, why: str) -> None:
    """Close the stream, and try again after a backoff. `why`: in words, for an operator."""
    close(player, target, why)
    target.health.on_failure(player.now_ms, player.settings, player.random)


def stop(player: PlayerState, target: Target, reason: str) -> None:
    """Close the stream, and open none until `Player.resume`."""
    close(player, target)
    target.link = LinkState.STOPPED
    target.stopped_because = reason
    target.health.on_stopped()
    player.outbox.stopped.append((target.name, reason))
    begin(player)  # the others may have waited for its response
