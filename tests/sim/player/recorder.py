"""Records what the cores of players and targets show after each of their steps, for the model to judge.

`recording()` patches the methods of `Player` and `TargetPosition`, and the simulated store's. It only reads,
so the run and its trace hash stay as they are. An event is written where something observable of a target
changed; a trace is of one target. What is due to it is what the group committed, not what a player has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from lockstep.player.core.messages import Batch, Entry, Hello, Part
from lockstep.player.core.player import Player
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.core.target import Target
from lockstep.player.core.target_queue import PartQueue
from lockstep.player.core.transitions import QueueState
from lockstep.player.target.target_position import Accepted, Mark, StaleTerms, StreamRejected, TargetPosition
from tests.model.player_events import (
    EMPTY,
    Event,
    PlayerEvent,
    PlayerTrace,
    Queued,
    Sent,
    TargetEvent,
    Terms,
)
from tests.sim.faces import Plant
from tests.sim.player.targets import Store, TargetProcess
from tests.sim.run import run_seed

WORKLOAD = "player"
MOST_SEEDS = 200
"""Of which one must show a planted mistake."""
OF_ALL = ("tick", "feed", "feed_lost")
OF_ONE = (
    "on_connected",
    "on_disconnected",
    "on_stale",
    "on_fetched",
    "on_fetch_failed",
    "on_range_lost",
    "on_written",
    "on_acknowledged",
    "add",
    "remove",
)
NO_TERMS: Terms = (0, 0)


class Seen:
    """What one player was seen to know of one target."""

    __slots__ = ("batch", "event", "has_failed", "newest_term")

    def __init__(self) -> None:
        self.event: PlayerEvent | None = None
        self.batch: Batch | None = None
        self.has_failed = False
        """Its Fetch failed, and comes again."""
        self.newest_term = 0
        """The highest so far: a core forgets the term of a removed target, a player of LogPlayer does not."""


class Track:
    """One target."""

    def __init__(self, process: TargetProcess) -> None:
        self.store = process.store
        self.rules = process.rules
        self.events: list[Event] = []
        self.processes: list[TargetProcess] = []
        self.sizes: dict[int, int] = {}
        self.seen: dict[int, Seen] = {}
        self._servers: dict[Terms, int] = {}
        self._over: set[Terms] = set()

    # --- the target ---------------------------------------------------------------------------------------

    def began(self, process: TargetProcess) -> None:
        self.processes.append(process)
        self._note("process", len(self.processes), process.marks.mark.terms)

    def at_process(
        self, call: str, marks: TargetPosition, terms: Terms, parts: Sequence[Part] = (), by: int = 0
    ) -> None:
        """A call of a process's Marks; of a stream that is refused, the first time only."""
        number = next(n for n, each in enumerate(self.processes, 1) if each.marks is marks)
        if call in ("hello", "refuses"):
            self._servers[terms] = number
        if call in ("drop", "refuses"):
            if terms in self._over:
                return
            self._over.add(terms)
        self._note(call, number, terms, [part.position for part in parts], by)

    def at_store(self, call: str, terms: Terms) -> None:
        """A greeting or a transaction of the stream with these terms, by whoever serves it."""
        if call in ("failed", "unpersisted"):
            self._over.add(terms)
        self._note(call, self._servers[terms], terms)

    def _note(self, call: str, number: int, terms: Terms, parts: Sequence[int] = (), by: int = 0) -> None:
        process, store = self.processes[number - 1], self.store
        marks = process.marks
        self.events.append(
            TargetEvent(
                number,
                call,
                terms,
                by,
                marks.mark.position,
                marks.received_position,
                len(process._work) + (call == "receive"),
                store.position,
                store.mark.terms if store.mark is not None else NO_TERMS,
                len(store.applied),
                tuple(parts),
            )
        )

    # --- players ------------------------------------------------------------------------------------------

    def called(self, core: Player, call: str, term: int = 0, first: int = -1) -> None:
        """After a call of a core."""
        seen = self.seen.setdefault(core.player_term, Seen())
        name, last = self.store.name, seen.event
        target = core.targets.get(name)
        handed = next((b for to, _, b in reversed(core.outbox.batches) if to == name), None)
        batch = handed if handed is not seen.batch else None
        seen.batch = handed
        if call == "fetch_failed":
            seen.has_failed = last is not None and last.reads and target is not None and not target.fetching
        elif target is None or target.fetching or target.queue.state is not QueueState.RECOVERY_FETCHING:
            seen.has_failed = False
        seen.newest_term = core.terms.get(name, seen.newest_term)
        event = _observed(core, target, name, call, term, first, batch, seen)
        if last is None or _shown(event) != _shown(last) or batch is not None:
            seen.event = event
            self.events.append(event)

    def read(self, position: int, parts: Sequence[tuple[str, Part]]) -> None:
        """Somebody has read an entry: so large is the part of it."""
        for name, part in parts:
            if name == self.store.name:
                self.sizes[position] = part.size_bytes

    def trace(self, settings: PlayerSettings) -> PlayerTrace:
        """What was recorded."""
        mine = [position for position, _ in self.rules.parts(self.store.name, -1, 1 << 60)]
        sizes = {position: self.sizes.get(position, 0) for position in mine}
        return PlayerTrace(self.store.name, settings, self.store.first_position - 1, sizes, self.events)


def _shown(event: PlayerEvent) -> tuple[object, ...]:
    """What of an event is more than its call."""
    names = [each for each in PlayerEvent.__slots__ if each not in ("call", "term", "first", "batch")]
    return tuple(getattr(event, name) for name in names)


def _queued(parts: Sequence[Part]) -> Queued:
    return (len(parts), parts[0].position, parts[-1].position) if parts else EMPTY


def _waiting(queue: PartQueue) -> Queued:
    return (len(queue), queue.parts[0].position, queue.parts[-1].position) if queue else EMPTY


def _observed(
    core: Player,
    target: Target | None,
    name: str,
    call: str,
    term: int,
    first: int,
    batch: Batch | None,
    seen: Seen,
) -> PlayerEvent:
    there = target or Target(name, 0, 0)
    queue = there.queue
    return PlayerEvent(
        core.player_term,
        call,
        term,
        first,
        "gone" if core.deposed else there.link.name.lower() if target is not None else "stopped",
        seen.newest_term,
        queue.state.value,
        there.last_ack,
        _waiting(queue.normal),
        _waiting(queue.catchup),
        _queued([part for parts in queue.popped for part in parts]),
        queue.sent_position,
        there.writing,
        there.fetching or seen.has_failed,
        there.fetched_position,
        there.end_position,
        there.dropped,
        core.started,
        core.current_position,
        None
        if batch is None
        else Sent(
            batch.previous_position,
            batch.last_position,
            len(batch.parts),
            sum(not part.is_dummy for part in batch.parts),
        ),
    )


class Recorder:
    """Collects the traces of one run, by target."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}
        self._settings = PlayerSettings()
        self._owners: dict[TargetPosition, Track] = {}

    def traces(self) -> list[PlayerTrace]:
        return [track.trace(self._settings) for track in self.tracks.values()]

    def began(self, process: TargetProcess) -> None:
        """A process of a target."""
        track = self.tracks.setdefault(process.store.name, Track(process))
        self._owners[process.marks] = track
        track.began(process)

    def track(self, marks: TargetPosition) -> Track:
        """Whose Marks these are."""
        return self._owners[marks]

    def called(self, core: Player, call: str, arguments: Sequence[Any]) -> None:
        """After a call of a core, with what it was called with."""
        self._settings = core.settings
        if call in ("feed", "fetched"):
            self._read(core, arguments[0] if call == "feed" else arguments[2])
        for name, track in self.tracks.items():
            if call in OF_ALL or call == "born":
                track.called(core, call, 0, arguments[0] if call == "feed_lost" else -1)
            elif arguments[0] != name:
                track.called(core, "other")
            elif call in ("add", "remove"):
                track.called(core, call)
            else:
                track.called(core, call, arguments[1], arguments[3] if call == "connected" else -1)

    def _read(self, core: Player, entries: Sequence[Entry]) -> None:
        for entry in entries:
            parts = core.route(entry)
            for track in self.tracks.values():
                track.read(entry.position, parts)


def _player_patches(recorder: Recorder) -> Iterator[Any]:
    real_init: Callable[..., None] = Player.__init__

    def init(self: Player, *args: Any, **named: Any) -> None:
        real_init(self, *args, **named)
        recorder.called(self, "born", ())

    yield patch.object(Player, "__init__", init)
    for name in (*OF_ALL, *OF_ONE):
        yield patch.object(Player, name, _recorded(recorder, name, getattr(Player, name)))


def _recorded(recorder: Recorder, name: str, real: Callable[..., None]) -> Callable[..., None]:
    def call(self: Player, *args: Any) -> None:
        real(self, *args)
        recorder.called(self, name.removeprefix("on_"), args)

    return call


def _marks_patches(recorder: Recorder) -> Iterator[Any]:
    real_hello, real_settled = TargetPosition.hello, TargetPosition.complete_handshake
    real_receive, real_stored = TargetPosition.receive, TargetPosition.on_stored

    def hello(self: TargetPosition, hello: Hello) -> Mark:
        track, terms = recorder.track(self), (hello.player_term, hello.target_term)
        try:
            mark = real_hello(self, hello)
        except StaleTerms as stale:
            track.at_process("refuses", self, terms, by=stale.mark.player_term)
            raise
        track.at_process("hello", self, terms)
        return mark

    def settled(self: TargetPosition, position: int) -> int:
        answer = real_settled(self, position)
        recorder.track(self).at_process("settled", self, self.mark.terms)
        return answer

    def receive(self: TargetPosition, terms: Terms, batch: Batch) -> Accepted:
        track = recorder.track(self)
        try:
            accepted = real_receive(self, terms, batch)
        except StreamRejected:
            track.at_process("drop", self, terms)
            raise
        track.at_process("receive", self, terms, accepted.parts)
        return accepted

    def stored(self: TargetPosition, accepted: Accepted) -> int:
        position = real_stored(self, accepted)
        recorder.track(self).at_process("store", self, accepted.mark.terms, accepted.parts)
        return position

    yield patch.object(TargetPosition, "hello", hello)
    yield patch.object(TargetPosition, "complete_handshake", settled)
    yield patch.object(TargetPosition, "receive", receive)
    yield patch.object(TargetPosition, "on_stored", stored)


def _store_patches(recorder: Recorder) -> Iterator[Any]:
    real_init: Callable[..., None] = TargetProcess.__init__
    real_answer, real_greet, real_commit = TargetProcess._answer, Store.greet, Store.commit

    def init(self: TargetProcess, *args: Any, **named: Any) -> None:
        real_init(self, *args, **named)
        recorder.began(self)

    def answer(self: TargetProcess) -> None:
        track, had_work = recorder.track(self.marks), bool(self._work)
        before = len(track.events)
        real_answer(self)
        if had_work and len(track.events) == before:
            track.at_process("unanswered", self.marks, self.marks.mark.terms)

    def greet(self: Store, mark: Mark) -> bool:
        is_taken = real_greet(self, mark)
        recorder.tracks[self.name].at_store("persisted" if is_taken else "unpersisted", mark.terms)
        return is_taken

    def commit(self: Store, accepted: Accepted) -> bool:
        is_committed = real_commit(self, accepted)
        if not is_committed:  # otherwise `TargetPosition.on_stored` follows
            recorder.tracks[self.name].at_store("failed", accepted.mark.terms)
        return is_committed

    yield patch.object(TargetProcess, "__init__", init)
    yield patch.object(TargetProcess, "_answer", answer)
    yield patch.object(Store, "greet", greet)
    yield patch.object(Store, "commit", commit)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record every player and target that is made and driven within."""
    recorder = Recorder()
    with ExitStack() as stack:
        for patches in (_player_patches, _marks_patches, _store_patches):
            for each in patches(recorder):
                stack.enter_context(each)
        yield recorder


def recorded_seed(seed: int) -> list[PlayerTrace]:
    """One seed of the workload: the trace of each target. AssertionError where it broke a rule."""
    with recording() as recorder:
        outcome = run_seed(seed, WORKLOAD)
    assert not outcome.rule, f"seed {seed}: {outcome.rule}: {outcome.violation}"
    return recorder.traces()


def recorded_plant(plant: Plant, most_events: int) -> list[PlayerTrace]:
    """The first seed that breaks a rule with this mistake, before a target's trace is longer than that.

    The mistake is planted before the recorder, which so sees what it has made of the code.
    Raises LookupError: no seed does, within MOST_SEEDS.
    """
    for seed in range(1, MOST_SEEDS + 1):
        with plant.apply(), recording() as recorder:
            outcome = run_seed(seed, WORKLOAD)
        traces = recorder.traces()
        if outcome.rule and max(len(trace.events) for trace in traces) <= most_events:
            return traces
    raise LookupError(f"{plant.name} shows in none of {MOST_SEEDS} seeds of {WORKLOAD}")
