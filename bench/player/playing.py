"""A player between a broker and the targets of a run, in a process of its own.

Owns: its source with the times at which it handed entries over, what it routes by, and the answers to
{do: "status"}. Says that it is ready when it follows all targets; a read of the log waits at the broker.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import uvloop

from bench.player.children import Words, answer, child_main, next_line, say_ready
from bench.player.workload import SplitByKey
from lockstep.playing.remote_source import RemoteSource
from player.core.settings import PlayerSettings
from player.playing.playing import PlayedTarget, Playing
from player.routing.reframing import Reframing
from player.routing.seam import Choice
from player.source.seam import Bounds, Chunk, Source
from player.transport.grpc_streams import GrpcStreams
from player.transport.raw_streams import RawStreams
from player.transport.seam import Streams
from protocol.records.record import Record

LOOK_S = 0.002
STREAMS: dict[str, Callable[[], Streams]] = {"grpc": GrpcStreams, "raw": RawStreams}


class TimedSource:
    """A source that notes when it hands entries over, and how many were there before it began."""

    def __init__(self, inner: Source, end_position: int) -> None:
        self._inner = inner
        self._end_position = end_position
        self.handed_ns = 0
        self.read_again = 0
        """Entries before `end_position` that were read, as often as they were."""

    @property
    def log_id(self) -> str:
        return self._inner.log_id

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def partition(self) -> int:
        return self._inner.partition

    async def bounds(self) -> Bounds:
        return await self._inner.bounds()

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> Chunk:
        chunk = await self._inner.read(first_position, max_bytes, wait_s)
        self.handed_ns = time.monotonic_ns()
        if chunk.entries and chunk.entries[0].position < self._end_position:
            self.read_again += sum(each.position < self._end_position for each in chunk.entries)
        return chunk

    async def close(self) -> None:
        await self._inner.close()


def _by_number(names: list[str]) -> Choice:
    """One target for each record, by its key, which is a number."""

    def choose(record: Record) -> list[str]:
        return [names[int(bytes(record.key or b"0")) % len(names)]]

    return choose


def _all(names: list[str]) -> Choice:
    return lambda record: names


def _rare(names: list[str]) -> Choice:
    """The last one gets the first record only; the others get all."""

    def choose(record: Record) -> list[str]:
        return names if record.key == b"0" else names[:-1]

    return choose


class SplitWhenHanded(SplitByKey):
    """As it is, with the time at which the source handed the entry over."""

    def __init__(self, names: list[str], source: TimedSource) -> None:
        super().__init__(names)
        self._source = source

    def __call__(self, record: Record) -> dict[str, bytes | None]:
        self.dispatched_ns = self._source.handed_ns
        return super().__call__(record)


ROUTES: dict[str, Callable[[list[str]], Choice]] = {"key": _by_number, "all": _all, "rare": _rare}
