"""A player between a log and the targets of a run; as a program, in a process of its own.

Owns: its source with the times at which it handed entries over, what it routes by, and the response to any
line: how far it is. Says that it is ready when it follows all targets.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from bench.player.workload import SplitByKey
from bench.sessions.children import Words, child_main, next_line, respond
from lockstep.player.core.router import Router
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.driver.driver import PlayerDriver
from lockstep.player.driver.target_record import TargetEndpoint
from lockstep.player.routing.broadcast import BroadcastRouter
from lockstep.player.routing.key_hash import KeyHashSelector
from lockstep.player.routing.record_router import RecordRouter
from lockstep.player.routing.selector import TargetSelector
from lockstep.player.source.interface import LogBounds, LogChunk, Source
from lockstep.player.transport.factory import make_streams
from lockstep.player_host.remote_source import RemoteSource
from lockstep.protocol.records.record import Record

LOOK_S = 0.002
START_TIMEOUT_S = 30.0
Lines = Callable[[], Awaitable[Words | None]]


class NotPlaying(RuntimeError):
    """Not all targets are followed in time."""


class TimedSource:
    """A source that notes when it hands entries over, and how many were there before it began."""

    def __init__(self, inner: Source, end_position: int) -> None:
        self._inner = inner
        self.end_position = end_position
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

    @property
    def log_group(self) -> int | None:
        return self._inner.log_group

    async def bounds(self) -> LogBounds:
        return await self._inner.bounds()

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        chunk = await self._inner.read(first_position, max_bytes, wait_s)
        self.handed_ns = time.monotonic_ns()
        if chunk.entries and chunk.entries[0].position < self.end_position:
            self.read_again += sum(each.position < self.end_position for each in chunk.entries)
        return chunk

    async def close(self) -> None:
        await self._inner.close()


class SplitWhenHanded(SplitByKey):
    """Routes by the key, with the time at which the source yielded the entry."""

    def __init__(self, names: list[str], source: TimedSource) -> None:
        super().__init__(names)
        self._source = source

    def __call__(self, record: Record) -> dict[str, bytes | None]:
        self.dispatched_ns = self._source.handed_ns
        return super().__call__(record)


def _rare(names: list[str]) -> TargetSelector:
    """The last one gets the records of one key only; the others get all."""

    def choose(record: Record) -> list[str]:
        return names if record.key == b"0" else names[:-1]

    return choose


def route_of(name: str, targets: list[str], source: TimedSource) -> Router:
    """`split` by the workload, `key` one target for each record, `all`, or `rare`."""
    if name == "all":
        return BroadcastRouter(targets)
    if name == "key":
        return RecordRouter(KeyHashSelector(targets, ()))
    return RecordRouter(_rare(targets) if name == "rare" else SplitWhenHanded(targets, source))


def status(playing: PlayerDriver, source: TimedSource) -> Words:
    """The progress of the player."""
    now = playing.status()
    return {
        "settled": now.current_position + 1 >= source.end_position
        and all(each.unacknowledged_entries + each.waiting_entries == 0 for each in now.targets),
        "read_again": source.read_again,
        "dummies": sum(playing.target_counters(each.name).dummies for each in now.targets),
    }


async def play(job: Words, inner: Source, next_line: Lines, send: Callable[[Words], None]) -> None:
    """Until the last line, or until the playing ends. The source is left open.

    Args:
        next_line: the next request, None after the last.
        send: sends a response.
    """
    source = TimedSource(inner, (await inner.bounds()).next_position)
    streams = make_streams(job["transport"])
    route = route_of(job["route"], list(job["addresses"]), source)
    settings = PlayerSettings(**job.get("settings", {}))
    targets = [TargetEndpoint(name, address) for name, address in job["addresses"].items()]
    begun = time.monotonic()
    playing = PlayerDriver(source, streams, route, settings, job.get("player_term", 1), targets)

    async def serve_requests() -> None:
        start_s = await _await_following(playing, begun)
        send({"ready": True})
        while await next_line() is not None:
            send({**status(playing, source), "start_s": start_s})

    tasks = [asyncio.ensure_future(playing.run()), asyncio.ensure_future(serve_requests())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await streams.close()


async def _await_following(playing: PlayerDriver, begun: float) -> float:
    """Seconds until all targets are followed. Raises NotPlaying."""
    deadline = begun + START_TIMEOUT_S
    while True:
        now = playing.status()
        if all(each.state == "N" for each in now.targets):
            return time.monotonic() - begun
        if time.monotonic() > deadline:
            raise NotPlaying(str(now))
        await asyncio.sleep(LOOK_S)


async def play_from_far(job: Words) -> None:
    """In this process, with a client's connections to the broker."""
    source = await RemoteSource.open(job["bootstrap"], job["topic"], 0)
    try:
        await play(job, source, lambda: asyncio.to_thread(next_line), respond)
    finally:
        await source.close()


def work(job: Words) -> None:
    uvloop.run(play_from_far(job))


if __name__ == "__main__":
    sys.exit(child_main(work))
