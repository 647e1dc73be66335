"""Whole players as processes: broker, shards in SQLite, the command; standby, kill, restart, changes."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import lockstep.testing
from compat_tests.probe import free_port
from lockstep.kafka_client.client import Client
from lockstep.protocol.records.record import BatchBuilder
from lockstep.testing import RunningBroker
from tests.broker.metrics.scraping import get, scrape
from tests.player.driver.doubles import until

ROOT = Path(__file__).parents[3]


class Command:
    """A command that runs, and says in its first line where it listens."""

    def __init__(self, words: tuple[str, ...], process: asyncio.subprocess.Process, log: Path) -> None:
        self.words = words
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def port(self) -> int:
        """That its first line ends with."""
        return int(self.said.splitlines()[0].rpartition(":")[2])

    async def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 30)


class Place:
    """A broker's topic, shards and players; all that was started ends with the test."""

    def __init__(self, broker: RunningBroker, topic: str, directory: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.directory = directory
        self.commands: list[Command] = []
        self.sent: dict[str, list[int]] = {"a": [], "b": []}

    async def start(self, *words: str) -> Command:
        log = self.directory / f"{len(self.commands)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *words, stdout=file, stderr=file, cwd=ROOT
            )
        command = Command(words, process, log)
        self.commands.append(command)
        await until(lambda: "\n" in command.said or process.returncode is not None)
        return command

    async def shard(self, name: str, transport: str = "grpc") -> Command:
        store = f"sqlite:///{self.directory}/{name}.db"
        return await self.start(
            "lockstep.demo.shard", "--store", store, "--listen", "127.0.0.1:0", "--transport", transport
        )

    async def player(self, name: str, ports: dict[str, int], text: str = "") -> Command:
        file = self.directory / f"{name}.toml"
        targets = "".join(f'[targets.{each}]\naddress = "127.0.0.1:{port}"\n' for each, port in ports.items())
        file.write_text(
            f'player = "{name}"\ntopic = "{self.topic}"\nbootstrap = "{self.broker.bootstrap_servers}"\n'
            f'listen = "127.0.0.1:0"\nroute = {{by = "header"}}\n{targets}{text}\n'
            f'[claims]\ntopic = "claims-{self.topic}"\nrenew_ms = 200\nlease_ms = 1500\n'
        )
        return await self.start("lockstep", "player", "run", str(file))

    async def produce(self, client: Client, targets: str, count: int = 10) -> None:
        topic = await client.topic(self.topic, create=True)
        builder = BatchBuilder()
        for number in range(count):
            builder.append(
                b"%d" % number,
                b"k%d" % number,
                timestamp_ms=1,
                headers=[("lockstep-targets", targets.encode())],
            )
        offset = await client.produce(topic, 0, builder.build())
        for target in targets.split(","):
            self.sent.setdefault(target, []).extend(range(offset, offset + count))

    def stored(self, name: str) -> list[int]:
        file = self.directory / f"{name}.db"
        if not file.exists():
            return []
        with closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("SELECT record_offset FROM shard_applied ORDER BY number")
            return [offset for (offset,) in rows]

    async def end(self) -> None:
        for command in self.commands:
            await command.stop(signal.SIGKILL)

    async def until_stored(self, *names: str) -> None:
        try:
            await until(lambda: all(self.stored(name) == self.sent[name] for name in names))
        except TimeoutError:
            found = "\n".join(f"{name}: {self.stored(name)} of {self.sent[name]}" for name in names)
            said = "\n".join(f"{' '.join(each.words)}:\n{each.said}" for each in self.commands)
            raise AssertionError(f"stored\n{found}\n{said}\n{await self._status()}") from None

    async def _status(self) -> str:
        """Of the players that answer."""
        players = [each for each in self.commands if each.words[0] == "lockstep"]
        alive = [each for each in players if each.process.returncode is None]
        return "\n".join([(await get(each.port, "/status")).body for each in alive])


@pytest.fixture
async def place(running: RunningBroker, topic: str, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(running, topic, tmp_path)
    async with Client(running.bootstrap_servers) as client:
        await client.create_topic(topic, partitions=1)
    yield made
    await made.end()


async def ask(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lockstep", "player", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def is_playing(player: Command) -> bool:
    return bool(json.loads((await get(player.port, "/status")).body)["logs"][0]["is_playing"])


async def until_playing(*players: Command) -> Command:
    async with asyncio.timeout(30):
        while True:
            for player in players:
                if await is_playing(player):
                    return player
            await asyncio.sleep(0.05)


async def test_a_player_without_targets_warns(place: Place) -> None:
    player = await place.player("one", {})
    await until(lambda: "WARNING  player one has no targets, so that nothing is delivered" in player.said)


async def test_standby_kill_and_clean_stop(place: Place, running: RunningBroker) -> None:
    shards = {name: (await place.shard(name)).port for name in ("a", "b")}
    async with Client(running.bootstrap_servers) as client:
        await place.produce(client, "a,b")
        one = await place.player("one", shards)
        await place.until_stored("a", "b")
        two = await place.player("two", shards)
        assert not await is_playing(two)
        await place.produce(client, "a")
        await place.produce(client, "b")
        await place.until_stored("a", "b")
        await one.stop(signal.SIGKILL)
        await place.produce(client, "a,b")
        await place.until_stored("a", "b")
        assert await is_playing(two)
        again = await place.player("one", shards)
        await place.produce(client, "a,b")
        await place.until_stored("a", "b")
        first = await until_playing(two, again)
        assert await first.stop() == 0, first.said
        await place.produce(client, "b,a")
        await place.until_stored("a", "b")


async def test_what_an_operator_does(place: Place, running: RunningBroker) -> None:
    shards = {name: await place.shard(name) for name in ("a", "b", "c")}
    ports = {name: each.port for name, each in shards.items()}
    player = await place.player("one", {"a": ports["a"], "b": ports["b"]})
    where = ("--player", f"127.0.0.1:{player.port}")
    async with Client(running.bootstrap_servers) as client:
        await place.produce(client, "a,b")
        await place.until_stored("a", "b")
        status, out = await ask("status", *where)
        assert status == 0, out
        assert out.startswith(f"player one, topic {place.topic}\n")
        assert "delivers" in out
        assert (await ask("pause", "b", *where))[1].startswith(
            "target b is paused, until the player's process ends"
        )
        await place.produce(client, "a")
        await place.produce(client, "b", 5)
        await place.until_stored("a")
        assert len(place.stored("b")) == 10
        status, out = await ask("status", *where, "--json")
        found: dict[str, Any] = json.loads(out)
        assert status == 0, "who is paused is no trouble"
        assert found["targets"]["b"]["paused"]
        assert (await ask("resume", "b", *where))[0] == 0
        await place.until_stored("b")
        await place.produce(client, "c")
        assert (await ask("add", "c", f"127.0.0.1:{ports['c']}", *where, "--json"))[0] == 0
        await place.until_stored("c")
        assert (await ask("remove", "c", *where))[1].startswith("target c is removed")
        assert (await ask("remove", "c", *where)) == (1, "lockstep: there is no target 'c'\n")
        metrics = await scrape(player.port)
        assert metrics['lockstep_player_target_parts_total{partition="0",target="a"}'] >= 2
        await shards["a"].stop()
        async with asyncio.timeout(30):
            while (await ask("status", *where))[0] == 0:
                pass


async def test_a_player_that_was_paused_does_no_harm(place: Place, running: RunningBroker) -> None:
    shards = {name: (await place.shard(name)).port for name in ("a", "b")}
    async with Client(running.bootstrap_servers) as client:
        one = await place.player("one", shards)
        two = await place.player("two", shards)
        await until_playing(one)
        await place.produce(client, "a,b")
        await place.until_stored("a", "b")
        one.process.send_signal(signal.SIGSTOP)
        await until_playing(two)
        await place.produce(client, "a,b")
        await place.until_stored("a", "b")
        one.process.send_signal(signal.SIGCONT)
        await until(lambda: "standing by" in one.said)
        await place.produce(client, "b,a")
        await place.until_stored("a", "b")


ROUTES = """
def odd(record):
    if record.value == b"bad":
        raise ValueError("a record that nobody can route")
    return [["a"], ["b"]][record.offset % 2]
"""


async def test_a_function_and_frames_and_a_partition_that_fails(place: Place, running: RunningBroker) -> None:
    (place.directory / "routes_beside.py").write_text(ROUTES)
    ports = {name: (await place.shard(name, "raw")).port for name in ("a", "b")}
    file = place.directory / "function.toml"
    targets = "".join(f'[targets.{each}]\naddress = "127.0.0.1:{port}"\n' for each, port in ports.items())
    file.write_text(
        f'player = "one"\ntopic = "{place.topic}"\nbootstrap = "{running.bootstrap_servers}"\n'
        'transport = "raw"\nlisten = "127.0.0.1:0"\n'
        'route = {by = "function", function = "routes_beside:odd"}\n'
        f'{targets}[claims]\ntopic = "claims-{place.topic}"\n'
    )
    async with Client(running.bootstrap_servers) as client:
        await client.grow_topic(place.topic, 2)
        await place.produce(client, "", 6)
        player = await place.start("lockstep", "player", "run", str(file))
        await until(lambda: place.stored("a") == [0, 2, 4] and place.stored("b") == [1, 3, 5])
        builder = BatchBuilder()
        builder.append(b"bad", timestamp_ms=1)
        await client.produce(await client.topic(place.topic), 1, builder.build())
        await until(lambda: "a record that nobody can route" in player.said)
        await place.produce(client, "", 2)
        await until(lambda: place.stored("a") == [0, 2, 4, 6] and place.stored("b") == [1, 3, 5, 7])
    status, out = await ask("status", "--player", f"127.0.0.1:{player.port}")
    assert status == 1
    assert "failed" in out
    assert "a record that nobody can route" in out
    assert f"{place.topic}-1 is no longer delivered here: " in player.said
    assert await player.stop() == 0, player.said


async def test_a_topic_that_is_deleted_ends_the_process(place: Place, running: RunningBroker) -> None:
    ports = {"a": (await place.shard("a")).port}
    player = await place.player("one", ports)
    async with Client(running.bootstrap_servers) as client:
        await place.produce(client, "a")
        await place.until_stored("a")
        await client.delete_topic(place.topic)
        assert await asyncio.wait_for(player.process.wait(), 60) == 1
    assert "was deleted" in player.said.splitlines()[-1]
    assert f"{place.topic}-0: " in player.said.splitlines()[-1]


async def test_a_header_that_no_record_of_the_topic_can_have(
    topic: str, running: RunningBroker, tmp_path: Path
) -> None:
    place = Place(running, topic, tmp_path)
    async with Client(running.bootstrap_servers) as client:
        await client.create_topic(topic, partitions=1, configs={"lockstep.locks": "true"})
    player = await place.player("one", {"a": 1})
    await until(lambda: "ready to play" in player.said)
    assert f"WARNING  {topic}: the topic has lockstep.locks=true, so no new record can have" in player.said
    await place.end()


async def until_told(player: Command, status: int, words: str = "") -> None:
    async with asyncio.timeout(30):
        while True:
            told, out = await ask("status", "--player", f"127.0.0.1:{player.port}")
            if told == status and words in out:
                return


async def test_brokers_that_do_not_answer_are_a_problem_while_they_do_not(topic: str, tmp_path: Path) -> None:
    """Of who plays and of who stands by: to both nothing is said, and all looks well otherwise."""
    where: dict[str, Any] = {"data_dir": tmp_path, "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    async with AsyncExitStack() as stack:
        async with lockstep.testing.broker(**where) as running:
            place = Place(running, topic, tmp_path)
            stack.push_async_callback(place.end)
            async with Client(running.bootstrap_servers) as client:
                await client.create_topic(topic, partitions=1)
                ports = {"a": (await place.shard("a")).port}
                players = [await place.player(name, ports) for name in ("one", "two")]
                await until_playing(players[0])
                await place.produce(client, "a")
                await place.until_stored("a")
            for player in players:
                await until_told(player, 0)
        for player in players:
            await until_told(player, 1, "no success for ")
        async with lockstep.testing.broker(**where):
            for player in players:
                await until_told(player, 0)


async def test_the_order_of_a_log_group_is_refused_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "player.toml"
    file.write_text(
        'player = "one"\ntopic = "t"\norder = "log group"\nroute = {by = "all"}\n'
        '[targets.a]\naddress = "127.0.0.1:1"\n'
    )
    status, out = await ask("run", str(file))
    assert status == 2
    assert f"{file}: order: 'log group' is for a player inside the broker" in out
    assert "lockstep.player.config" in out and "LSN" in out
