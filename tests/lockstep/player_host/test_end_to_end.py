"""From a broker over gRPC or raw frames into SQLite: each record once, in order, at its target alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from compat_tests.probe import free_port
from lockstep.broker.server import Broker
from lockstep.kafka_client.client import Client
from lockstep.player.core.settings import PlayerSettings
from lockstep.player.driver.driver import PlayerDriver
from lockstep.player.driver.errors import Deposed
from lockstep.player.driver.target_record import TargetEndpoint
from lockstep.player.routing.header import TARGETS_HEADER, HeaderSelector
from lockstep.player.routing.record_router import RecordRouter
from lockstep.player.target.records import Delivered
from lockstep.player.target.sessions import StoreSessions
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.transport.factory import Transport, make_server, make_streams
from lockstep.player_host.remote_source import RemoteSource
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder
from tests.broker.conftest import StartBroker

LONG_S = 60.0
NAMES = ("a", "b", "c")
SETTINGS = PlayerSettings(heartbeat_ms=100, hello_timeout_ms=10_000, start_timeout_ms=10_000, dummy_every=20)


class Shard:
    """One target: a database, and a process that can be ended and started anew."""

    def __init__(self, name: str, directory: Path, transport: Transport) -> None:
        self.name = name
        self._transport: Transport = transport
        self.path = directory / f"{name}.db"
        self.address = f"127.0.0.1:{free_port()}"
        self.is_up = False
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")

    async def start(self) -> None:
        self._sessions = StoreSessions(SqliteStore(self.path, self._apply))
        self._server = make_server(self._transport, self._sessions)
        await self._server.start(self.address)
        self.is_up = True

    async def stop(self) -> None:
        if self.is_up:
            self.is_up = False
            await self._server.close(0)
            await self._sessions.close()

    @staticmethod
    def _apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            assert record.value is not None
            connection.execute("INSERT INTO seen (value) VALUES (?)", (record.value.decode(),))

    def seen(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [value for (value,) in connection.execute("SELECT value FROM seen ORDER BY number")]


class World:
    """A broker, a topic, and three shards."""

    def __init__(self, start: StartBroker, directory: Path, transport: Transport) -> None:
        self._start = start
        self._transport = transport
        self._directory = directory
        self._listeners = f"PLAINTEXT://127.0.0.1:{free_port()}"
        self.shards = {name: Shard(name, directory, transport) for name in NAMES}
        self.sent: dict[str, list[str]] = {name: [] for name in NAMES}
        self._number = 0
        self.broker: Broker

    async def start_broker(self) -> None:
        self.broker = await self._start(self._directory / "data", listeners=self._listeners)

    async def write(self, *targets: Sequence[str], codec: Codec = Codec.NONE) -> None:
        """One batch, with a record for each of these."""
        builder = BatchBuilder(codec)
        for names in targets:
            value = str(self._number)
            self._number += 1
            headers = [(TARGETS_HEADER, ",".join(names).encode())]
            builder.append(value.encode(), b"key", timestamp_ms=self._number, headers=headers)
            for name in names:
                self.sent[name].append(value)
        async with Client(self.broker.bootstrap_servers) as client:
            await client.produce(await client.topic("t"), 0, builder.build())

    async def some(self, count: int) -> None:
        for at in range(count):
            await self.write("a", "b", ("a", "b", "c"), "", codec=Codec(at % 5))
            await self.write("a", "a")

    def has_all(self, *names: str) -> bool:
        return all(self.shards[name].seen() == self.sent[name] for name in names or NAMES)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def playing(self, player_term: int) -> AsyncIterator[PlayerDriver]:
        source = await RemoteSource.open(self.broker.bootstrap_servers, "t", 0)
        streams = make_streams(self._transport)
        targets = [TargetEndpoint(name, shard.address) for name, shard in self.shards.items()]
        route = RecordRouter(HeaderSelector())
        made = PlayerDriver(source, streams, route, SETTINGS, player_term, targets)
        run = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            await streams.close()
            await source.close()


@pytest.fixture(params=["grpc", "raw"])
async def world(
    start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    made = World(start_broker, tmp_path, request.param)
    await made.start_broker()
    async with Client(made.broker.bootstrap_servers) as client:
        await client.create_topic("t", partitions=1)
    for shard in made.shards.values():
        await shard.start()
    yield made
    for shard in made.shards.values():
        await shard.stop()


async def test_from_an_old_log_and_then_as_it_is_written(world: World) -> None:
    await world.some(10)
    async with world.playing(1) as play:
        await world.until(world.has_all)
        await world.some(10)
        await world.until(world.has_all)
        assert not play.core.unrouted and play.status().current_position == 119
        counters = play.target_counters("c")
        assert counters.recoveries == 0 and counters.parts == 20


async def test_a_shard_dies_and_comes_back_and_so_does_the_broker(world: World) -> None:
    async with world.playing(1) as play:
        await world.some(5)
        await world.until(world.has_all)
        await world.shards["b"].stop()
        await world.some(10)
        await world.until(lambda: world.has_all("a", "c"))
        assert not world.has_all("b")
        await world.broker.stop()
        await world.shards["c"].stop()
        await world.shards["b"].start()
        await world.start_broker()
        await world.some(5)
        await world.until(lambda: world.has_all("a", "b"))
        await world.shards["c"].start()
        await world.until(world.has_all)
        assert play.target_counters("b").recoveries == 1 and play.target_counters("a").recoveries == 0


async def test_another_player_takes_over_and_the_first_is_deposed(world: World) -> None:
    async with world.playing(1):
        await world.some(5)
        await world.until(world.has_all)
    await world.some(5)
    async with world.playing(2) as second:
        await world.until(world.has_all)
        async with world.playing(3):
            await world.some(5)
            await world.until(world.has_all)
            await world.until(lambda: bool(second.status().ended_because))
            assert second.status().ended_because == str(Deposed(3))
