"""A log, a transport and targets in memory, around the real rule of a target.

An entry's payload is the names of its targets, `"a b"`; its part for each is `"a@<position>"`, of 10 bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lockstep.player.core.messages import Batch, Entry, Part
from lockstep.player.core.settings import Bound, PlayerSettings
from lockstep.player.driver.driver import PlayerDriver
from lockstep.player.driver.target_record import TargetEndpoint
from lockstep.player.source.interface import LogBounds, LogChunk, RangeLost, SourceClosed
from lockstep.player.target.target_position import Mark, StaleTerms, StreamRejected, TargetPosition
from lockstep.player.transport.interface import Handshake, StreamEvents

LOG_ID = "cluster/topic/0"
PART_BYTES = 10
PATIENCE_S = 20.0


def route(entry: Entry) -> list[tuple[str, Part]]:
    names = str(entry.payload).split()
    return [(name, Part(entry.position, f"{name}@{entry.position}", PART_BYTES)) for name in names]


def settings(**others: Any) -> PlayerSettings:
    """Small bounds, quick timers, no dummies."""
    small: dict[str, Any] = {
        "batch": Bound(10, 1000),
        "window": Bound(40, 10_000),
        "normal": Bound(50, 10_000),
        "catchup": Bound(50, 10_000),
        "dummy_every": 0,
        "heartbeat_ms": 25,
        "silent_heartbeats": 8,
        "hello_timeout_ms": 500,
        "start_timeout_ms": 300,
        "backoff_ms": 10,
        "longest_backoff_ms": 50,
    }
    return PlayerSettings(**{**small, **others})


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it; AssertionError where it does not come."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class MemoryLog:
    """A `Source` over a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first_position = 0
        self.next_position = 0
        self.has_ended = False
        self.reads: list[int] = []
        self.asked_bounds = 0
        self.answers_nothing = 0
        """So many reads that could bring something bring nothing, as at a leader that has just changed."""
        self._changed: list[asyncio.Future[None]] = []
        self.log_id = LOG_ID
        self.topic = "topic"
        self.partition = 0
        self.log_group: int | None = None

    def append(self, *payloads: str) -> None:
        for payload in payloads:
            self.entries.append(Entry(self.next_position, payload))
            self.next_position += 1
        self.changed()

    def skip(self, positions: int) -> None:
        """What is no entry: control batches, what was aborted."""
        self.next_position += positions
        self.changed()

    def trim(self, first_position: int) -> None:
        self.first_position = first_position
        self.changed()

    def end(self) -> None:
        self.has_ended = True
        self.changed()

    def changed(self) -> None:
        waiting, self._changed = self._changed, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def bounds(self) -> LogBounds:
        self.asked_bounds += 1
        if self.has_ended:
            raise SourceClosed("the topic was deleted")
        return LogBounds(self.first_position, self.next_position)

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        self.reads.append(first_position)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            if self.has_ended:
                raise SourceClosed("the topic was deleted")
            if first_position < self.first_position:
                raise RangeLost(self.first_position)
            if first_position < self.next_position:
                if self.answers_nothing:
                    self.answers_nothing -= 1
                    return LogChunk([], first_position - 1)
                return self._chunk(first_position, max_bytes)
            changed = loop.create_future()
            self._changed.append(changed)
            try:
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                return LogChunk([], first_position - 1)

    def _chunk(self, first_position: int, max_bytes: int) -> LogChunk:
        found = [entry for entry in self.entries if entry.position >= first_position]
        most = max(1, max_bytes // PART_BYTES)
        if len(found) > most:
            return LogChunk(found[:most], found[most - 1].position)
        return LogChunk(found, self.next_position - 1)

    async def close(self) -> None:
        pass


class MemoryTarget:
    """A store that survives, and a process that can crash, hang and be slow."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark: Mark | None = None
        self.applied: list[int] = []
        """Positions, in the order in which they were stored."""
        self.is_up = True
        self.hangs = False
        """As if stopped: it reads nothing, and its connection is full."""
        self.apply_s = 0.0
        self.greetings: list[tuple[int, int]] = []
        self.refusals: list[str] = []
        self.marks = TargetPosition(LOG_ID, None)
        self.streams: list[MemoryStream] = []

    def crash(self) -> None:
        self.is_up = False
        for stream in self.streams:
            stream.breaks("crashed")
        self.streams.clear()

    def restart(self) -> None:
        self.is_up = True
        self.marks = TargetPosition(LOG_ID, self.mark)

    def hello(self, stream: MemoryStream) -> None:
        try:
            self.mark = self.marks.hello(stream.handshake.hello)
        except StaleTerms as stale:
            stream.tells(stream.events.on_stale, stale.mark.player_term)
            stream.breaks("stale")
            return
        self.greetings.append(self.mark.terms)
        stream.terms = self.mark.terms
        stream.tells(stream.events.on_greeted, self.marks.complete_handshake(self.mark.position))

    def batch(self, stream: MemoryStream, batch: Batch) -> None:
        try:
            accepted = self.marks.receive(stream.terms, batch)
        except StreamRejected as refused:
            self.refusals.append(str(refused))
            stream.breaks(str(refused))
            return
        for part in accepted.parts:
            assert part.payload == f"{self.name}@{part.position}"
            self.applied.append(part.position)
        self.mark = accepted.mark
        position = self.marks.on_stored(accepted)
        if self.apply_s:
            asyncio.get_running_loop().call_later(
                self.apply_s, stream.tells, stream.events.on_acknowledged, position
            )
        else:
            stream.tells(stream.events.on_acknowledged, position)

    def heartbeat(self, stream: MemoryStream) -> None:
        stream.tells(stream.events.on_acknowledged, self.marks.stored_position)


class MemoryStream:
    """The player's end, and the wire. With `at_once`, all is told from within `open` and `write`."""

    def __init__(
        self, target: MemoryTarget, handshake: Handshake, events: StreamEvents, at_once: bool
    ) -> None:
        self.target = target
        self.handshake = handshake
        self.events = events
        self.terms = (0, 0)
        self.batches: list[Batch] = []
        self.is_closed = False
        """By the player."""
        self.is_broken = False
        self._at_once = at_once

    def write(self, batch: Batch) -> None:
        assert not self.is_closed, "nothing is written to a closed stream"
        self.batches.append(batch)
        if self.is_broken or self.target.hangs:
            return
        self.arrives(self.target.batch, batch)
        self.tells(self.events.on_written)

    def heartbeat(self) -> None:
        assert not self.is_closed
        if not self.is_broken and not self.target.hangs:
            self.arrives(self.target.heartbeat)

    def close(self) -> None:
        self.is_closed = True

    def arrives(self, call: Callable[..., object], *args: object) -> None:
        """At the target."""

        def arrive() -> None:
            if not self.is_broken and self.target.is_up:
                call(self, *args)

        self._soon(arrive)

    def tells(self, call: Callable[..., object], *args: object) -> None:
        """The player."""

        def tell() -> None:
            if not self.is_closed and not self.target.hangs:
                call(*args)

        if not self.is_broken:
            self._soon(tell)

    def breaks(self, reason: str) -> None:
        self.tells(self.events.on_closed, reason)
        self.is_broken = True

    def _soon(self, call: Callable[[], object]) -> None:
        if self._at_once:
            call()
        else:
            asyncio.get_running_loop().call_soon(call)


class MemoryStreams:
    """A `Streams` to targets in memory; an address is a target's name."""

    def __init__(self, *names: str, at_once: bool = False) -> None:
        self.targets = {name: MemoryTarget(name) for name in names}
        self.at_once = at_once
        self.opened: list[MemoryStream] = []

    def __getitem__(self, name: str) -> MemoryTarget:
        return self.targets[name]

    def open(self, address: str, handshake: Handshake, events: StreamEvents) -> MemoryStream:
        target = self.targets[address]
        stream = MemoryStream(target, handshake, events, self.at_once)
        self.opened.append(stream)
        if not target.is_up:
            stream.breaks("connection refused")
        elif not target.hangs:
            target.streams.append(stream)
            stream.arrives(target.hello)
        return stream

    async def close(self) -> None:
        pass


@asynccontextmanager
async def playing(
    log: MemoryLog, streams: MemoryStreams, player_term: int = 1, route: Any = route, **others: Any
) -> AsyncIterator[PlayerDriver]:
    """To all targets, until the block ends."""
    targets = [TargetEndpoint(name, name) for name in streams.targets]
    made = PlayerDriver(log, streams, route, settings(**others), player_term, targets, poll_s=0.05)
    run = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


def expected(log: MemoryLog, name: str) -> list[int]:
    return [entry.position for entry in log.entries if name in str(entry.payload).split()]


def has_all(log: MemoryLog, streams: MemoryStreams, *names: str) -> bool:
    return all(streams[name].applied == expected(log, name) for name in names or streams.targets)
