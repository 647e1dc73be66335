"""A player beside its broker, in one process, with targets that store what they get."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from compat_tests.probe import free_port
from lockstep.broker.server import CannotStart
from lockstep.player.target.records import Delivered
from lockstep.player.target.sessions import StoreSessions
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.transport.factory import Transport, make_server
from lockstep.player_host.config import PlayerConfigError, parse
from lockstep.player_host.in_broker import PlayerInBroker
from lockstep.protocol.records.record import BatchBuilder, Record
from tests.broker.cluster.brokers import POLL_INTERVAL_SECONDS
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.wire import Client

LONG_S = 30.0


def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS applied (value TEXT)")
    rows = [((record.value or b"").decode(),) for record in delivered.records]
    connection.executemany("INSERT INTO applied VALUES (?)", rows)


class Shard:
    """A target with a file of its own, served here."""

    def __init__(
        self,
        path: Path,
        apply: Callable[[sqlite3.Connection, Delivered], None] = apply,
        transport: Transport = "grpc",
    ) -> None:
        self._path = path
        self._transport = transport
        self._apply = apply
        self.address = ""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        sessions = StoreSessions(SqliteStore(self._path, self._apply))
        server = make_server(self._transport, sessions)
        self.address = await server.start("127.0.0.1:0")
        try:
            yield
        finally:
            await server.close(0)
            await sessions.close()

    def rows(self, query: str = "SELECT value FROM applied ORDER BY rowid") -> list[Any]:
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path)) as connection:
            try:
                return [row[0] for row in connection.execute(query)]
            except sqlite3.OperationalError:
                return []

    def player_term(self) -> int:
        (term,) = self.rows("SELECT player_term FROM lockstep_player_marks")
        assert isinstance(term, int)
        return term


def configured(extra: str = "", **shards: Shard) -> PlayerInBroker:
    targets = "".join(
        f'[targets.{name}]\naddress = "{shard.address}"\nfirst = "earliest"\n'
        for name, shard in shards.items()
    )
    return PlayerInBroker(
        parse(f'player = "p"\ntopic = "t"\n{extra}\n[route]\nby = "header"\notherwise = ["a"]\n{targets}')
    )


def routed(value: str, targets: str | None) -> bytes:
    builder = BatchBuilder()
    headers = [] if targets is None else [("lockstep-targets", targets.encode())]
    builder.append(value.encode(), timestamp_ms=1, headers=headers)
    return builder.build()


async def until(holds: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + LONG_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def test_serves_and_plays_through_restarts(start_broker: StartBroker, tmp_path: Path) -> None:
    a, b = Shard(tmp_path / "a.db"), Shard(tmp_path / "b.db")
    wanted: dict[str, list[str]] = {"a": [], "b": []}
    terms: list[int] = []
    async with a.served(), b.served():
        for turn in range(3):
            broker = await start_broker()
            client = await Client.connect(broker.port)
            if turn == 0:
                await client.create("t")
            async with configured(a=a, b=b)(broker):
                for number, targets in enumerate((None, "a", "b", "a, b", "nobody")):
                    value = f"{turn}-{number}"
                    await client.produce("t", routed(value, targets))
                    for name in (targets or "a").replace(" ", "").split(","):
                        wanted.setdefault(name, []).append(value)
                await until(lambda: (a.rows(), b.rows()) == (wanted["a"], wanted["b"]))
            await client.close()
            await broker.stop()
            terms.append(a.player_term())
    assert terms == sorted(set(terms)), "each start has a term above all before"


async def test_three_nodes_play_in_turn(start_cluster: StartCluster, tmp_path: Path) -> None:
    """Whoever leads plays; what is stored is the log, in order, once, however often that changes."""
    a = Shard(tmp_path / "a.db")
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    await (await cluster.client(1)).create("t")
    partition = cluster.brokers[1].assembly.cluster.partition("t", 0)
    assert partition is not None
    number = partition.group.group_id
    terms: list[int] = []
    async with a.served(), AsyncExitStack() as stack:
        for broker in cluster.brokers.values():
            await stack.enter_async_context(configured(a=a)(broker))
        for turn in range(5):
            await until(lambda: cluster.leader_of(number) is not None)
            leader = cluster.leader_of(number)
            assert leader is not None
            client = await cluster.client(leader)
            for value in range(turn * 10, turn * 10 + 10):
                answer = await client.produce("t", routed(str(value), None))
                assert answer.error_code == 0
                if value % 10 == 4:
                    await until(lambda value=value: a.rows()[-1:] == [str(value)])  # type: ignore[misc]
                    terms.append(a.player_term())
            cluster.brokers[leader].groups[number].transfer_to_best()  # with some of it on the way
            await until(lambda leader=leader: cluster.leader_of(number) not in (None, leader))  # type: ignore[misc]
        await until(lambda: len(a.rows()) >= 50)
    assert a.rows() == [str(value) for value in range(50)]
    assert terms == sorted(set(terms))


async def test_its_status(start_broker: StartBroker, tmp_path: Path) -> None:
    a = Shard(tmp_path / "a.db")
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    port = free_port()

    def asked(path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG_S) as answer:
            found: bytes = answer.read()
            return found

    async with a.served():
        beside = configured(f'listen = "127.0.0.1:{port}"', a=a)
        async with beside(broker):
            await client.produce("t", routed("x", None))
            await until(lambda: a.rows() == ["x"])
            (told,) = json.loads(await asyncio.to_thread(asked, "/status"))["logs"]
            assert (told["partition"], told["is_playing"], told["holder"]) == (0, True, "p")
            assert told["player_term"] == a.player_term()
            assert b"# HELP" in await asyncio.to_thread(asked, "/metrics")
            with pytest.raises(CannotStart, match=str(port)):
                async with beside(broker):
                    pass
        with pytest.raises(OSError):
            await asyncio.to_thread(asked, "/status")
    await client.close()


async def test_logs_what_it_delivers_and_what_has_no_target(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lockstep.player")
    a = Shard(tmp_path / "a.db")
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", partitions=2, lockstep_locks="true")
    async with a.served():
        async with configured(a=a)(broker):
            await client.produce("t", routed("x", None), 1)
            await until(lambda: a.rows() == ["x"])
        term = max(a.rows("SELECT player_term FROM lockstep_player_marks"))
    said = [each for each in caplog.messages if each.startswith("t-")]
    assert sorted(said) == [f"t-{number}: delivered here in term {term}" for number in range(2)]
    (warned,) = [each for each in caplog.messages if "lockstep.locks=true" in each]
    assert "no targets" not in caplog.text
    assert warned.startswith("t: ") and "all go to a: " in warned
    await client.close()


async def test_a_player_without_targets_warns(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker()
    async with PlayerInBroker(parse('player = "p"\ntopic = "t"\nroute.by = "all"'))(broker):
        (warned,) = [each for each in caplog.messages if "no targets" in each]
    assert warned == (
        "player p has no targets, so that nothing is delivered: configure targets.NAME.address, or "
        "`lockstep player add NAME HOST:PORT`"
    )


def bad_choice(record: Record) -> list[str]:
    """A routing function as users write them."""
    if record.value == b"bad":
        raise LookupError("no such shard")
    return ["a"]


async def test_the_status_has_what_fails(start_broker: StartBroker, tmp_path: Path) -> None:
    """Of two partitions one is not played: all is not well, though the other one is."""
    a = Shard(tmp_path / "a.db")
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", partitions=2)
    port = free_port()
    logs: list[dict[str, Any]] = []

    def looked() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=LONG_S) as answer:
            logs[:] = sorted(json.load(answer)["logs"], key=lambda each: each["partition"])

    async with a.served():
        text = f'player = "p"\ntopic = "t"\nlisten = "127.0.0.1:{port}"\n'
        route = f'[route]\nby = "function"\nfunction = "{__name__}:bad_choice"\n'
        target = f'[targets.a]\naddress = "{a.address}"\n'
        async with PlayerInBroker(parse(f"{text}{route}{target}"))(broker):
            await client.produce("t", routed("bad", None))
            await client.produce("t", routed("good", None), 1)
            await until(lambda: a.rows() == ["good"])
            async with asyncio.timeout(LONG_S):
                while len(logs) < 2 or not logs[0]["failed"]:
                    await asyncio.to_thread(looked)
            assert "LookupError: no such shard" in logs[0]["failed"]
            assert [each["is_playing"] for each in logs] == [False, True]
            assert logs[1]["failed"] == "" and logs[0]["played"] is None
    await client.close()


def test_an_unusable_configuration_is_reported_before_the_start() -> None:
    text = 'player = "p"\ntopic = "t"\n[route]\nby = "function"\nfunction = "nowhere_at_all:f"\n'
    with pytest.raises(PlayerConfigError, match=r"route\.function"):
        PlayerInBroker(parse(f'{text}[targets.a]\naddress = "127.0.0.1:1"\n'))
