"""Streams into a target, without a transport: what is sent, and what comes back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final

from lockstep.player.core.messages import Batch, Hello, Part, dummy
from lockstep.player.target.sessions import StoreSession, StoreSessions
from lockstep.player.transport.interface import Handshake
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder

PATIENCE_S: Final = 30.0
LOG_ID: Final = "cluster/topic/0"


def value(offset: int, size_bytes: int = 10) -> bytes:
    """Of the record at an offset: the same, whoever makes it."""
    return f"value {offset} ".encode().ljust(size_bytes, b".")


def payload(
    offset: int, count: int = 1, *, codec: Codec = Codec.NONE, size_bytes: int = 10, control: bool = False
) -> bytes:
    """A record batch with `count` records from this offset on; keys repeat."""
    builder = BatchBuilder(codec, control=control)
    for at in range(offset, offset + count):
        headers = [("at", str(at).encode())]
        builder.append(
            value(at, size_bytes), f"key {at % 3}".encode(), timestamp_ms=1000 + at, headers=headers
        )
    return builder.build(offset)


def part(position: int, size_bytes: int = 10) -> Part:
    """An entry of one record, which is at its position."""
    made = payload(position, size_bytes=size_bytes)
    return Part(position, made, len(made))


def batch(previous: int, *positions: int, dummies: Sequence[int] = (), size_bytes: int = 10) -> Batch:
    parts = [dummy(at) if at in dummies else part(at, size_bytes) for at in positions]
    return Batch(previous, parts, sum(each.size_bytes for each in parts))


def hello(player_term: int, target_term: int, first_position: int = 0, log_id: str = LOG_ID) -> Handshake:
    _, topic, partition = log_id.split("/")
    return Handshake(Hello(log_id, player_term, target_term, first_position), topic, int(partition))


class Answered:
    """Everything that a target said on one stream."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self._more = asyncio.Event()

    def accept(self, position: int) -> None:
        self._say("greeted", position)

    def reject(self, player_term: int, target_term: int) -> None:
        self._say("stale", player_term, target_term)

    def acknowledge(self, position: int) -> None:
        self._say("acknowledged", position)

    def end(self, reason: str) -> None:
        self._say("ended", reason)

    async def until(self, *wanted: object) -> None:
        """It was said."""
        while wanted not in self.said:
            await self._next()

    async def first(self) -> tuple[object, ...]:
        """Whatever was said first."""
        while not self.said:
            await self._next()
        return self.said[0]

    async def over(self, position: int) -> None:
        """All is acknowledged, or the stream is over."""
        while not any(
            said[0] in ("stale", "ended") or said == ("acknowledged", position) for said in self.said
        ):
            await self._next()

    async def ended(self) -> str:
        """With which words."""
        while True:
            for said in self.said:
                if said[0] == "ended":
                    return str(said[1])
            await self._next()

    async def _next(self) -> None:
        self._more.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._more.wait()

    def _say(self, *what: object) -> None:
        self.said.append(what)
        self._more.set()


class Streams:
    """A player's streams to one target, each with the next term."""

    def __init__(self, sessions: StoreSessions, player_term: int = 1) -> None:
        self.sessions = sessions
        self._player_term = player_term
        self._terms = itertools.count(1)

    async def greeted(self, position: int, first_position: int = 0) -> tuple[StoreSession, Answered]:
        """A new stream, whose Hello is answered so."""
        session, answered = self.open(first_position)
        await answered.until("greeted", position)
        return session, answered

    def open(self, first_position: int = 0) -> tuple[StoreSession, Answered]:
        answered = Answered()
        handshake = hello(self._player_term, next(self._terms), first_position)
        return self.sessions.open_session(handshake, answered), answered
