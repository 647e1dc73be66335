"""A log group played to targets: exactly what is theirs, in the order of LSNs, whoever leads meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from compat_tests.probe import free_port
from lockstep.cli import main
from lockstep.player.target.records import Delivered
from lockstep.player.transport.factory import Transport
from lockstep.player_host.config import parse
from lockstep.player_host.in_broker import PlayerInBroker
from lockstep.player_host.in_process_source import InProcessSource
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.metrics.scraping import get, scrape
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.test_group_source import as_logged
from tests.lockstep.player_host.test_in_broker import Shard, until

PARTITIONS = 4


def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
    """`partition@offset value` of each record, in its order."""
    assert (delivered.topic, delivered.partition) == ("t", -1)
    connection.execute("CREATE TABLE IF NOT EXISTS applied (value TEXT)")
    for entry in delivered.entries:
        rows = [
            (f"{entry.partition}@{record.offset} {(record.value or b'').decode()}",)
            for record in entry.records
        ]
        connection.executemany("INSERT INTO applied VALUES (?)", rows)


def configured(extra: str = "", **shards: Shard) -> PlayerInBroker:
    targets = "".join(f'[targets.{name}]\naddress = "{each.address}"\n' for name, each in shards.items())
    route = '[route]\nby = "function"\nfunction = "tests.lockstep.player_host.routed:targets_of"\n'
    return PlayerInBroker(parse(f'player = "p"\ntopic = "t"\norder = "log group"\n{extra}\n{route}{targets}'))


class Writers:
    """Who writes to the topic, and what must not be delivered."""

    def __init__(self, cluster: BrokerCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.aborted: set[bytes] = set()
        self.committed = 0
        self._numbers = itertools.count()

    def value(self) -> bytes:
        return b"%s:%d" % (self.rng.choice([b"a", b"b", b"ab", b""]), next(self._numbers))

    async def plain(self, count: int) -> None:
        """Single batches, again where nobody leads."""
        for _ in range(count):
            made = batch(*[self.value() for _ in range(self.rng.randrange(1, 4))])
            partition = self.rng.randrange(PARTITIONS)
            while True:
                leader = self.cluster.leader_of(1)
                if leader is not None:
                    client = await self.cluster.client(leader)
                    if (await client.produce("t", made, partition)).error_code == 0:
                        break
                await asyncio.sleep(0.02)

    async def transactions(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            commit = self.rng.random() < 0.6
            for partition in self.rng.sample(range(PARTITIONS), self.rng.randrange(1, 3)):
                some = [self.value() for _ in range(self.rng.randrange(1, 3))]
                if not commit:
                    self.aborted.update(some)
                await producer.write("t", partition, *some)
            await producer.end(commit)
            self.committed += commit

    def expected(self, name: str) -> list[str]:
        """From the frames of the log themselves."""
        leader = self.cluster.leader_of(1)
        assert leader is not None
        broker = self.cluster.brokers[leader]
        topic = broker.assembly.cluster.topic("t")
        assert topic is not None
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        found = []
        for _, partition, base_offset, said in as_logged(broker.groups[1], topic.topic_id):
            assert base_offset >= offsets[partition]
            offsets[partition] = base_offset
            for place, value in enumerate(said):
                if name in value.partition(b":")[0].decode() and value not in self.aborted:
                    found.append(f"{partition}@{base_offset + place} {value.decode()}")
        return found


async def test_three_nodes_under_transactions(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = await start_cluster(
        3,
        lockstep_data_groups="1",
        auto_leader_rebalance_enable="false",
        transaction_state_log_num_partitions="1",
    )
    await cluster.settled()
    await (await cluster.client(1)).create("t", partitions=PARTITIONS)
    a, b = Shard(tmp_path / "a.db", apply), Shard(tmp_path / "b.db", apply)
    writers = Writers(cluster, random.Random(7))
    stacks = {node: AsyncExitStack() for node in cluster.brokers}
    terms: list[int] = []

    async def move(leader: int) -> None:
        cluster.brokers[leader].groups[1].transfer_to_best()
        await until(lambda: cluster.leader_of(1) not in (None, leader))

    async with a.served(), b.served(), AsyncExitStack() as whole:
        for node, broker in cluster.brokers.items():
            await whole.enter_async_context(stacks[node])
            await stacks[node].enter_async_context(configured(a=a, b=b)(broker))
        producers = [await Producer.of(cluster, name) for name in ("one", "two", "open")]
        await producers[2].write("t", 0, b"ab:open at first")
        for turn in range(4):
            writing = asyncio.gather(
                writers.plain(12),
                writers.plain(12),
                writers.transactions(producers[0], 4),
                writers.transactions(producers[1], 4),
            )
            await asyncio.sleep(0.1)
            leader = cluster.leader_of(1)
            if leader is not None and turn % 2:
                await move(leader)  # with some of it on the way
            await writing
            if turn == 1:
                assert not a.rows() and not b.rows(), "all of it stands behind an open transaction"
                await producers[2].end(True)
            leader = cluster.leader_of(1)
            assert leader is not None
            if turn >= 1:
                await until(lambda: a.rows() == writers.expected("a"))
                terms.append(a.player_term())
            if turn == 2:
                await producers[2].write("t", 1, b"ab:open while its leader stops")
                await stacks[leader].aclose()
                await cluster.stop(leader)
                await until(lambda: cluster.leader_of(1) is not None)
                writers.aborted.add(b"ab:open while its leader stops")
                await producers[2].end(False)
                await cluster.start(leader)
                await stacks[leader].enter_async_context(configured(a=a, b=b)(cluster.brokers[leader]))
        assert writers.committed > 3 and len(writers.aborted) > 3
        await until(lambda: a.rows() == writers.expected("a") and b.rows() == writers.expected("b"))
        assert len({row.partition("@")[0] for row in a.rows()}) == PARTITIONS
        assert len(a.rows()) > 40 and terms == sorted(terms) and len(set(terms)) > 1
        for each in producers:
            await each.close()


@pytest.mark.parametrize("transport", ["grpc", "raw"])
async def test_one_log_for_each_group_through_restarts(
    start_broker: StartBroker, tmp_path: Path, transport: Transport, capsys: pytest.CaptureFixture[str]
) -> None:
    a = Shard(tmp_path / "a.db", apply, transport)
    port = free_port()
    said: list[tuple[int, str]] = []
    terms: list[int] = []
    async with a.served():
        for turn in range(3):
            broker = await start_broker(lockstep_data_groups="2")
            client = await Client.connect(broker.port)
            if turn == 0:
                await client.create("t", partitions=PARTITIONS)
            topic = broker.assembly.cluster.topic("t")
            assert topic is not None
            groups = {each.index: each.group.group_id for each in topic.partitions}
            beside = configured(f'transport = "{transport}"\nlisten = "127.0.0.1:{port}"', a=a)
            async with beside(broker) as players:
                for number in range(12):
                    said.append((number * 7 % PARTITIONS, f"a:{turn}-{number}"))
                    await client.produce("t", batch(said[-1][1].encode()), said[-1][0])
                await until(lambda: len(a.rows()) == len(said))
                assert {each.source.log_group for each in players.drivers.values()} == {1, 2}
                found = await scrape(port)
                status = json.loads((await get(port, "/status")).body)
                told = await asyncio.to_thread(main, ["player", "status", "--player", f"127.0.0.1:{port}"])
            await client.close()
            await broker.stop()
            terms.append(min(a.rows("SELECT player_term FROM lockstep_player_marks")))
    rows = a.rows()
    for group in (1, 2):
        wanted = [value for partition, value in said if groups[partition] == group]
        assert [row.split()[1] for row in rows if groups[int(row.partition("@")[0])] == group] == wanted
        assert len(wanted) == 18 and found[f'lockstep_player_started{{partition="log group {group}"}}'] == 1
    assert [(each["partition"], each["log_group"]) for each in status["logs"]] == [(-1, 1), (-1, 2)]
    assert status["logs"][0]["played"]["log_group"] == 1
    assert told == 0 and "log group 2" in capsys.readouterr().out
    assert terms == sorted(set(terms)), "each start has a term above all before"


async def test_two_orders_are_two_logs(start_broker: StartBroker, tmp_path: Path) -> None:
    """Whoever changes the order begins anew: a mark of offsets is none of LSNs."""
    broker = await start_broker()
    topic = await (client := await Client.connect(broker.port)).create("t")
    shard = Shard(tmp_path / "a.db", apply)
    async with shard.served(), configured(a=shard)(broker) as players:
        await client.produce("t", batch(b"a:1"))
        await until(lambda: len(shard.rows()) == 1)
        (log_id,) = players.drivers
    found = broker.assembly.cluster.partition("t", 0)
    assert found is not None and found.topic.topic_id == topic
    assert InProcessSource(broker.assembly.cluster, broker.assembly.fetch_purgatory, found).log_id != log_id
    await client.close()
