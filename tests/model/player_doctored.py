"""Traces of the player that lie: each takes a true trace and changes what a player or a target is said to
have done. TLC must refuse every one of them, at the event that lies.

A doctor looks for the first place where its lie can be told and returns the trace up to there (what follows a
lie proves nothing), or None where the trace has no such place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.model.player_events import EMPTY, Event, PlayerEvent, PlayerTrace, TargetEvent

Doctor = Callable[[PlayerTrace], PlayerTrace | None]


def _ends_with(trace: PlayerTrace, number: int, lie: Event) -> PlayerTrace:
    return replace(trace, events=[*trace.events[:number], lie])


def _players(
    trace: PlayerTrace, *calls: str
) -> Iterator[tuple[int, PlayerEvent, PlayerEvent, TargetEvent | None]]:
    """(number, event, what that player showed before, the target's last event before) of open streams."""
    last: dict[int, PlayerEvent] = {}
    target: TargetEvent | None = None
    for number, event in enumerate(trace.events):
        if isinstance(event, TargetEvent):
            target = event
            continue
        before = last.get(event.player)
        if before is not None and event.call in calls:
            yield number, event, before, target
        last[event.player] = event


def _targets(trace: PlayerTrace, *calls: str) -> Iterator[tuple[int, TargetEvent]]:
    for number, event in enumerate(trace.events):
        if isinstance(event, TargetEvent) and event.call in calls:
            yield number, event


# --- the target -------------------------------------------------------------------------------------------


def applied_twice(trace: PlayerTrace) -> PlayerTrace | None:
    """A transaction applies its first part twice."""
    for number, event in _targets(trace, "store"):
        if event.parts:
            parts = (event.parts[0], *event.parts)
            return _ends_with(trace, number, replace(event, parts=parts, applied=event.applied + 1))
    return None


def applied_again(trace: PlayerTrace) -> PlayerTrace | None:
    """What was stored is received, and taken, once more."""
    for number, event in _targets(trace, "store"):
        if event.parts:
            return _ends_with(trace, number + 1, replace(event, applied=event.applied + len(event.parts)))
    return None


def one_not_applied(trace: PlayerTrace) -> PlayerTrace | None:
    """A transaction leaves a part out."""
    for number, event in _targets(trace, "store"):
        if len(event.parts) > 1:
            lie = replace(event, parts=event.parts[1:], applied=event.applied - 1)
            return _ends_with(trace, number, lie)
    return None


def received_with_a_gap(trace: PlayerTrace) -> PlayerTrace | None:
    """A target takes a batch of which the first part is missing."""
    for number, event in _targets(trace, "receive"):
        if len(event.parts) > 1:
            return _ends_with(trace, number, replace(event, parts=event.parts[1:]))
    return None


def dummy_not_stored(trace: PlayerTrace) -> PlayerTrace | None:
    """A batch of dummies leaves the mark where it was."""
    stored = trace.before_first
    for number, event in enumerate(trace.events):
        if isinstance(event, TargetEvent):
            if event.call == "store" and not event.parts and event.stored > stored:
                return _ends_with(trace, number, replace(event, stored=stored, position=stored))
            stored = event.stored
    return None


def stored_in_older_terms(trace: PlayerTrace) -> PlayerTrace | None:
    """A transaction is committed, though the store has newer terms."""
    for number, event in _targets(trace, "failed"):
        lie = replace(event, call="store", position=event.stored + 1, stored=event.stored + 1)
        return _ends_with(trace, number, lie)
    return None


def older_stream_received(trace: PlayerTrace) -> PlayerTrace | None:
    """A target takes a batch of a stream that is not its newest."""
    for number, event in _targets(trace, "drop"):
        lie = replace(event, call="receive", work=event.work + 1, received=event.received + 1)
        return _ends_with(trace, number, lie)
    return None


def older_hello_taken(trace: PlayerTrace) -> PlayerTrace | None:
    """A target takes a Hello with terms below its own."""
    for number, event in _targets(trace, "refuses"):
        return _ends_with(trace, number, replace(event, call="hello", by=0))
    return None


def older_hello_persisted(trace: PlayerTrace) -> PlayerTrace | None:
    """A process that was replaced persists terms below the store's."""
    for number, event in _targets(trace, "unpersisted"):
        return _ends_with(trace, number, replace(event, call="persisted", stored_terms=event.terms))
    return None


def answered_too_little(trace: PlayerTrace) -> PlayerTrace | None:
    """A Hello is answered with less than is stored."""
    for number, event in _targets(trace, "settled"):
        if event.stored > trace.before_first:
            position = event.position - 1
            return _ends_with(trace, number, replace(event, position=position, received=position))
    return None


def mark_forgotten(trace: PlayerTrace) -> PlayerTrace | None:
    """A new process begins without the terms of its store."""
    for number, event in _targets(trace, "process"):
        if event.stored_terms != (0, 0):
            return _ends_with(trace, number, replace(event, terms=(0, 0)))
    return None


# --- the player -------------------------------------------------------------------------------------------


def acknowledged_beyond_what_is_stored(trace: PlayerTrace) -> PlayerTrace | None:
    """A player hears that all it has sent is stored, and it is not."""
    for number, event, _, target in _players(trace, "acknowledged"):
        if event.link == "open" and event.ack < event.sent and target and target.stored < event.sent:
            lie = replace(event, ack=event.sent, popped=EMPTY)
            return _ends_with(trace, number, lie)
    return None


def acknowledgement_goes_back(trace: PlayerTrace) -> PlayerTrace | None:
    """A late acknowledgement counts."""
    for number, event, before, _ in _players(trace, "acknowledged"):
        if event.link == before.link == "open" and before.call == "acknowledged" and event.ack > before.ack:
            late = replace(event, ack=before.ack, batch=None)
            return _ends_with(trace, number + 1, late)
    return None


def older_stream_heard(trace: PlayerTrace) -> PlayerTrace | None:
    """An acknowledgement counts that came on a stream which was given up."""
    for number, event, _, _ in _players(trace, "acknowledged"):
        if event.link == "open" and event.term > 1:
            return _ends_with(trace, number, replace(event, term=event.term - 1))
    return None


def older_read_used(trace: PlayerTrace) -> PlayerTrace | None:
    """What was read for a stream that was given up counts for the next."""
    for number, event, before, _ in _players(trace, "fetched"):
        if event.link == "open" and event.term > 1 and event.fetched > before.fetched:
            return _ends_with(trace, number, replace(event, term=event.term - 1))
    return None


def read_with_a_hole(trace: PlayerTrace) -> PlayerTrace | None:
    """A part that was read is not queued."""
    for number, event, before, _ in _players(trace, "fetched"):
        if event.catchup[0] > 1 and event.catchup[0] > before.catchup[0]:
            count, first, last = event.catchup
            return _ends_with(trace, number, replace(event, catchup=(count - 1, first, last)))
    return None


def _connected(trace: PlayerTrace, **changed: int) -> PlayerTrace | None:
    """The first connection with something to recover is said to be so much further."""
    for number, event, _, _ in _players(trace, "connected"):
        if event.link == "open" and event.state == "RF" and event.started and event.ack < event.end:
            lie = replace(event, **{name: getattr(event, name) + by for name, by in changed.items()})
            return _ends_with(trace, number, lie)
    return None


def recovery_starts_late(trace: PlayerTrace) -> PlayerTrace | None:
    """A recovery begins one behind what is missed."""
    return _connected(trace, fetched=1)


def recovery_ends_early(trace: PlayerTrace) -> PlayerTrace | None:
    """A recovery ends one before the main stream's position."""
    return _connected(trace, end=-1)


def recovery_ends_late(trace: PlayerTrace) -> PlayerTrace | None:
    """A recovery ends one behind the main stream's position."""
    return _connected(trace, end=1)


def answer_not_believed(trace: PlayerTrace) -> PlayerTrace | None:
    """A player begins one behind the position that the target has answered."""
    return _connected(trace, ack=1, sent=1, fetched=1)


def normal_too_soon(trace: PlayerTrace) -> PlayerTrace | None:
    """A recovery is over while some of it still waits."""
    for number, event, before, _ in _players(trace, "fetched", "written", "acknowledged", "feed"):
        if event.state == "FC" and before.state == "RF":
            return _ends_with(trace, number, replace(event, state="N"))
    return None


def completed_too_soon(trace: PlayerTrace) -> PlayerTrace | None:
    """FC, while a part of what is missed is still being read."""
    for number, event, before, _ in _players(trace, "fetched", "written", "acknowledged", "feed"):
        if event.state == before.state == "RF" and event.reads and event.catchup[0]:
            return _ends_with(trace, number, replace(event, state="FC", reads=False))
    return None


def suspended_with_its_queue(trace: PlayerTrace) -> PlayerTrace | None:
    """A stream is given up, and what waited stays."""
    for number, event, before, _ in _players(trace, "disconnected", "tick"):
        if event.state == "S" and before.normal[0]:
            return _ends_with(trace, number, replace(event, normal=before.normal))
    return None


def suspended_with_what_was_sent(trace: PlayerTrace) -> PlayerTrace | None:
    """A stream is given up, and what was sent still counts as under way."""
    for number, event, before, _ in _players(trace, "disconnected", "tick"):
        if event.state == "S" and before.popped[0]:
            return _ends_with(trace, number, replace(event, popped=before.popped))
    return None


def popped_not_written(trace: PlayerTrace) -> PlayerTrace | None:
    """A batch is taken from the queue and not handed out: the next one comes behind it."""
    for number, event, before, _ in _players(trace, "feed", "written", "acknowledged", "fetched"):
        batch = event.batch
        if batch is not None and batch.parts > 1 and before.link == "open":
            lie = replace(event, batch=replace(batch, parts=batch.parts - 1, real=max(0, batch.real - 1)))
            return _ends_with(trace, number, lie)
    return None


def previous_made_up(trace: PlayerTrace) -> PlayerTrace | None:
    """A batch says that it follows on what was not sent."""
    for number, event, before, _ in _players(trace, "feed", "written", "acknowledged", "fetched"):
        batch = event.batch
        if batch is not None and before.link == "open" and batch.previous + 1 < batch.last:
            return _ends_with(
                trace, number, replace(event, batch=replace(batch, previous=batch.previous + 1))
            )
    return None


def dummy_in_place_of_a_part(trace: PlayerTrace) -> PlayerTrace | None:
    """A part is sent without its payload."""
    for number, event, _, _ in _players(trace, "feed", "written", "acknowledged", "fetched"):
        if event.batch is not None and event.batch.real:
            batch = replace(event.batch, real=event.batch.real - 1)
            return _ends_with(trace, number, replace(event, batch=batch))
    return None


def two_writes_at_once(trace: PlayerTrace) -> PlayerTrace | None:
    """A batch is handed out while the one before it is being written."""
    for number, event, before, _ in _players(trace, "feed"):
        if before.writing and event.writing and event.batch is None and event.normal[0] > before.normal[0]:
            count, _, last = event.normal
            popped = (event.popped[0] + count, event.popped[1], last)
            return _ends_with(trace, number, replace(event, normal=EMPTY, popped=popped, sent=last))
    return None


def part_not_queued(trace: PlayerTrace) -> PlayerTrace | None:
    """The main stream brings a part that the queue does not get."""
    for number, event, before, _ in _players(trace, "feed"):
        if event.link == "open" and event.normal[0] > before.normal[0] and not event.batch:
            return _ends_with(trace, number, replace(event, normal=before.normal))
    return None


def dummy_overtakes(trace: PlayerTrace) -> PlayerTrace | None:
    """What the main stream has brought last stands before what waits."""
    for number, event, _, _ in _players(trace, "feed"):
        count, first, last = event.normal
        if count > 1:
            return _ends_with(trace, number, replace(event, normal=(count, last, first)))
    return None


def overflow_ignored(trace: PlayerTrace) -> PlayerTrace | None:
    """More waits than may, and the target goes on."""
    for number, event, before, _ in _players(trace, "feed"):
        if before.state == "N" and event.state == "S":
            lie = replace(before, call="feed", term=0, current=event.current, batch=None)
            return _ends_with(trace, number, lie)
    return None


def drop_forgotten(trace: PlayerTrace) -> PlayerTrace | None:
    """What waited behind a recovery is dropped, and the recovery is not to be extended."""
    for number, event, before, _ in _players(trace, "feed"):
        if event.dropped and not before.dropped:
            return _ends_with(trace, number, replace(event, dropped=False))
    return None


def term_used_again(trace: PlayerTrace) -> PlayerTrace | None:
    """A new stream has the term of the one before."""
    for number, event, before, _ in _players(trace, "tick"):
        if event.link == "handshake" and before.link == "disconnected" and before.newest_term > 0:
            return _ends_with(trace, number, replace(event, newest_term=before.newest_term))
    return None


def started_behind_a_target(trace: PlayerTrace) -> PlayerTrace | None:
    """The main stream starts behind what a target lacks that has answered."""
    for number, event, before, _ in _players(trace, "connected", "tick", "other"):
        if event.started and not before.started and event.link == "open" and event.current == event.ack:
            current = event.current + 1
            return _ends_with(trace, number, replace(event, current=current, end=current, fetched=event.ack))
    return None


def deposed_without_a_newer_player(trace: PlayerTrace) -> PlayerTrace | None:
    """The only player there ever was is deposed."""
    for number, event, _, _ in _players(trace, "disconnected"):
        if event.player == 1 and all(
            each.player == 1 for each in trace.events[:number] if isinstance(each, PlayerEvent)
        ):
            return _ends_with(trace, number, replace(event, call="other", link="gone"))
    return None


DOCTORED: dict[str, Doctor] = {
    doctor.__name__: doctor
    for doctor in (
        applied_twice,
        applied_again,
        one_not_applied,
        received_with_a_gap,
        dummy_not_stored,
        stored_in_older_terms,
        older_stream_received,
        older_hello_taken,
        older_hello_persisted,
        answered_too_little,
        mark_forgotten,
        acknowledged_beyond_what_is_stored,
        acknowledgement_goes_back,
        older_stream_heard,
        older_read_used,
        read_with_a_hole,
        recovery_starts_late,
        recovery_ends_early,
        recovery_ends_late,
        answer_not_believed,
        normal_too_soon,
        completed_too_soon,
        suspended_with_its_queue,
        suspended_with_what_was_sent,
        popped_not_written,
        previous_made_up,
        dummy_in_place_of_a_part,
        two_writes_at_once,
        part_not_queued,
        dummy_overtakes,
        overflow_ignored,
        drop_forgotten,
        term_used_again,
        started_behind_a_target,
        deposed_without_a_newer_player,
    )
}


def lies(traces: Iterable[PlayerTrace]) -> dict[str, PlayerTrace]:
    """A lie of each kind, the shortest that these traces have a place for."""
    found: dict[str, PlayerTrace] = {}
    for trace in traces:
        for name, doctor in DOCTORED.items():
            lie = doctor(trace)
            if lie is not None and (name not in found or len(lie.events) < len(found[name].events)):
                found[name] = lie
    return {name: found[name] for name in DOCTORED if name in found}
