"""Targets that note when something came."""

from __future__ import annotations

from typing import Any

from bench.player.watched import LeanSessions, Watched
from bench.player.workload import split, transaction
from lockstep.player.core.messages import Batch, Hello, Part, dummy
from lockstep.player.transport.interface import Handshake
from lockstep.protocol.records.record import BatchBuilder


class Heard:
    """What a target answers."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def accept(self, position: int) -> None:
        self.said.append(("greeted", position))

    def reject(self, player_term: int, target_term: int) -> None:
        self.said.append(("stale", player_term, target_term))

    def acknowledge(self, position: int) -> None:
        self.said.append(("acknowledged", position))

    def end(self, reason: str) -> None:
        self.said.append(("ended", reason))


def _batch(previous: int, *numbers: int) -> Batch:
    parts = []
    for number in numbers:
        builder = BatchBuilder()
        builder.append(split(transaction(number, 1, 1), 1, 2)[0], None, timestamp_ms=0)
        parts.append(Part(5 + number, builder.build(5 + number), 1000))
    parts.append(dummy(6 + numbers[-1]))
    return Batch(previous, parts, 1000)


def _handshake(target_term: int) -> Handshake:
    return Handshake(Hello("log", 1, target_term, 5), "topic", 0)


def test_a_lean_target_acknowledges_at_once_and_notes_each_part_once() -> None:
    watched, first, second = Watched(LeanSessions()), Heard(), Heard()
    stream = watched.open_session(_handshake(1), first)
    stream.receive(_batch(4, 0))
    stream.heartbeat()
    assert first.said == [("greeted", 4), ("acknowledged", 6), ("acknowledged", 6)]
    again = watched.open_session(_handshake(2), second)
    again.receive(_batch(4, 0, 2))
    stream.receive(_batch(6, 3))
    assert second.said == [("greeted", 6), ("acknowledged", 8)] and len(first.said) == 3
    watched.open_session(_handshake(1), first)
    assert first.said[-1] == ("stale", 1, 2)
    assert watched.records == 2 and len(watched.noted()) == 2


def test_a_durable_target_counts_what_it_has_acknowledged() -> None:
    class Late(LeanSessions):
        def open_session(self, handshake: Handshake, responder: Any) -> Any:
            self.responder = responder
            return super().open_session(handshake, responder)

    watched = Watched(inner := Late(), at_acknowledgement=True)
    stream = watched.open_session(_handshake(1), Heard())
    inner.terms = (9, 9)  # it acknowledges nothing by itself
    stream.receive(_batch(4, 0))
    stream.receive(_batch(6, 2))
    assert watched.records == 0
    inner.responder.acknowledge(6)
    assert watched.records == 1 and watched.first_ns == watched.last_ns > 0
    inner.responder.acknowledge(8)
    assert watched.records == 2
