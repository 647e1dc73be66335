"""Targets: a store that survives everything, and processes around the real `TargetPosition`.

A transaction takes time, and is applied whole or not at all; it fails where the store has other terms than it
was begun with. A target may have an old process that still runs beside the new one: both have the same store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.player.core.messages import Batch, Hello
from lockstep.player.target.target_position import Accepted, Mark, StaleTerms, StreamRejected, TargetPosition
from tests.sim.player.processes import Process
from tests.sim.player.streams import Broken, Stream

if TYPE_CHECKING:
    from tests.sim.player.rules import Rules
    from tests.sim.world import World

LOG_ID = "cluster/topic/0"
Terms = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """All up to there is stored."""

    position: int


@dataclass(frozen=True, slots=True)
class Answer:
    """To a Hello."""

    position: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The stream's terms are stale."""

    player_term: int


class Store:
    """What one target has on its disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark: Mark | None = None
        self.applied: list[tuple[int, object]] = []
        """(position, payload), as they were applied."""
        self.first_position = 0
        """Where it began."""
        self.acknowledged = -1
        """The highest position that any process of it has ever acknowledged."""

    @property
    def position(self) -> int:
        return self.mark.position if self.mark is not None else -1

    def greet(self, mark: Mark) -> bool:
        """Persist its terms; the position only where there is none. Whether the store took it."""
        if self.mark is None:
            self.mark = mark
            self.first_position = mark.position + 1
        elif self.mark.terms < mark.terms:
            self.mark = Mark(mark.log_id, mark.player_term, mark.target_term, self.mark.position)
        else:
            return False
        return True

    def commit(self, accepted: Accepted) -> bool:
        """One transaction; whether it was committed."""
        if self.mark is None or self.mark.terms != accepted.mark.terms:
            return False
        self.applied += [(part.position, part.payload) for part in accepted.parts]
        self.mark = accepted.mark
        return True


class TargetProcess(Process):
    """One process of one target."""

    def __init__(self, world: World, store: Store, rules: Rules, apply_us: int) -> None:
        super().__init__(world)
        self.store = store
        self.rules = rules
        self.marks = TargetPosition(LOG_ID, store.mark)
        self.apply_us = apply_us
        self.slow_until_us = 0
        self.hangs_until_us = 0
        self._random = world.random(f"target {store.name}")
        self._terms: dict[Stream, Terms] = {}
        self._work: deque[tuple[Stream, Accepted]] = deque()
        self._is_storing = False
        self._greeted: Stream | None = None
        """The stream whose Hello is persisted and not answered."""

    def streams(self) -> list[Stream]:
        """Those that it has greeted."""
        return list(self._terms)

    def arrived(self, stream: Stream, message: object) -> None:
        """Something comes down a stream."""
        match message:
            case Hello():
                self._hello(stream, message)
            case Batch():
                self._batch(stream, message)
            case Heartbeat():
                # a stream is over for the target, too, once a newer one is greeted
                if self._terms.get(stream) == self.marks.mark.terms:
                    self._acknowledge(stream, self.marks.stored_position)
            case Broken():
                self._terms.pop(stream, None)

    def _hello(self, stream: Stream, hello: Hello) -> None:
        try:
            mark = self.marks.hello(hello)
        except StaleTerms as stale:
            stream.up.send(Refusal(stale.mark.player_term))
            stream.cut()
            return
        self._terms[stream] = mark.terms
        self.later(self._duration_us(), lambda: self._persisted(stream, mark))

    def _persisted(self, stream: Stream, mark: Mark) -> None:
        if not self.store.greet(mark):
            stream.cut()
            return
        self._greeted = stream
        if not self._is_storing:
            self._answer()

    def _answer(self) -> None:
        """What older streams had under way has ended."""
        stream, self._greeted = self._greeted, None
        self._work.clear()
        if stream is not None and self._terms.get(stream) == self.marks.mark.terms:
            position = self.marks.complete_handshake(self.store.position)
            self.rules.answers(self.store, position)
            stream.up.send(Answer(position))

    def _batch(self, stream: Stream, batch: Batch) -> None:
        terms = self._terms.get(stream)
        if terms is None:
            return
        before = self.marks.received_position
        try:
            accepted = self.marks.receive(terms, batch)
        except StreamRejected:
            self.rules.refuses(self.store, terms, self.marks.mark.terms, before, batch)
            stream.cut()
            return
        self.rules.receives(self.store, terms, self.marks.mark.terms, before, batch)
        self._work.append((stream, accepted))
        self._work_on()

    def _work_on(self) -> None:
        if not self._is_storing and self._work:
            self._is_storing = True
            wait_us = max(0, self.hangs_until_us - self.world.now_us)
            self.later(wait_us + self._duration_us(), self._store)

    def _store(self) -> None:
        """The running transaction ends."""
        self._is_storing = False
        if self._work:
            stream, accepted = self._work.popleft()
            before = self.store.position
            if self.store.commit(accepted):
                self.rules.stores(self.store, before)
                position = self.marks.on_stored(accepted)
                more = self._work and self._random.random() < 0.5
                if not more:  # otherwise only the last of the sequence is acknowledged
                    self._acknowledge(stream, position)
            else:
                stream.cut()
                self._terms.pop(stream, None)  # nothing more is read of it
        if self._greeted is not None:
            self._answer()
        self._work_on()

    def _acknowledge(self, stream: Stream, position: int) -> None:
        self.store.acknowledged = max(self.store.acknowledged, position)
        stream.up.send(Acknowledgement(position))

    def _duration_us(self) -> int:
        mean_us = self.apply_us * (100 if self.world.now_us < self.slow_until_us else 1)
        return int(self._random.expovariate(1 / mean_us)) + 1
