"""Two ends for a transport: a player that notes what it is told, a target that does as it is bid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from lockstep.player.core.messages import Batch, Hello, Part, dummy
from lockstep.player.transport.interface import Handshake, Responder

PATIENCE_S = 30.0


class Watched:
    """Something that is waited for."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Heard(Watched):
    """A player's end: StreamEvents."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[str, object]] = []

    def _note(self, kind: str, what: object) -> None:
        self.all.append((kind, what))
        self.changed()

    def on_greeted(self, position: int) -> None:
        self._note("greeted", position)

    def on_stale(self, player_term: int) -> None:
        self._note("stale", player_term)

    def on_acknowledged(self, position: int) -> None:
        self._note("acknowledged", position)

    def on_written(self) -> None:
        self._note("written", None)

    def on_closed(self, reason: str) -> None:
        self._note("closed", reason)

    def of(self, kind: str) -> list[object]:
        return [what for each, what in self.all if each == kind]

    async def told(self, kind: str, count: int = 1) -> object:
        """The newest of a kind, when there are so many."""
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[-1]


class Served(Watched):
    """A target's end of one stream: Session."""

    def __init__(self, handshake: Handshake, responder: Responder, acknowledges: bool) -> None:
        super().__init__()
        self.handshake = handshake
        self.responder = responder
        self.acknowledges = acknowledges
        self.batches: list[Batch] = []
        self.heartbeats = 0
        self.closings = 0
        self.room = asyncio.Event()
        self.room.set()

    def receive(self, batch: Batch) -> None:
        assert not self.closings
        self.batches.append(batch)
        if self.acknowledges:
            self.responder.acknowledge(batch.last_position)
        self.changed()

    def heartbeat(self) -> None:
        assert not self.closings
        self.heartbeats += 1
        self.responder.acknowledge(self.batches[-1].last_position if self.batches else 0)
        self.changed()

    def on_closed(self) -> None:
        self.closings += 1
        self.changed()

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    async def wait_for_room(self) -> None:
        await self.room.wait()

    async def until_closed(self) -> None:
        await self.until(lambda: self.closings > 0)
        assert self.closings == 1


class Target(Watched):
    """Sessions: answers each Hello at once, unless it is told not to."""

    def __init__(self, *, acknowledges: bool = True, answers_hello: bool = True) -> None:
        super().__init__()
        self.acknowledges = acknowledges
        self.answers_hello = answers_hello
        self.served: list[Served] = []

    def open_session(self, handshake: Handshake, responder: Responder) -> Served:
        served = Served(handshake, responder, self.acknowledges)
        self.served.append(served)
        if self.answers_hello:
            responder.accept(handshake.hello.first_position - 1)
        self.changed()
        return served

    async def serving(self, count: int = 1) -> Served:
        """The newest stream, when there are so many."""
        await self.until(lambda: len(self.served) >= count)
        return self.served[-1]


def handshake(target_term: int = 1, first_position: int = 1) -> Handshake:
    return Handshake(Hello("cluster/topic/0", 7, target_term, first_position), "orders", 3)


def batch(previous: int, *payloads: bytes | None) -> Batch:
    """Parts that follow `previous`; None is a dummy."""
    parts: Sequence[Part] = [
        dummy(previous + count) if payload is None else Part(previous + count, payload, len(payload))
        for count, payload in enumerate(payloads, 1)
    ]
    return Batch(previous, parts, sum(part.size_bytes for part in parts))


def of_several(of: Batch, partitions: Sequence[int]) -> Batch:
    """The same where the log is several partitions: of these in turn."""
    for place, part in enumerate(of.parts):
        if not part.is_dummy:
            part.partition = partitions[place % len(partitions)]
    return of


def shape(of: Batch) -> tuple[object, ...]:
    """What must arrive as it was sent."""
    parts = [
        (part.position, part.payload, part.size_bytes, part.is_dummy, part.partition) for part in of.parts
    ]
    return of.previous_position, parts, of.size_bytes
