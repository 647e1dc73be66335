"""What the event loop of a serving broker waits for: each call that may block is known, with its reason.

decision 47 has the reasons. The list may only shrink: a call that is added here is to be moved to a thread.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from lockstep.broker.node.data_directory import write_flushed
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client as AdminClient
from lockstep.player_host.config import parse
from lockstep.player_host.in_broker import PlayerInBroker
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.broker.blocking_calls import PACKAGE, traced
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.controller.test_cluster_admin import hosted, nodes, placed, write
from tests.broker.metrics.scraping import get
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch

FLUSH = "on the loop while the disk is fast, in a thread while it is slow (decision 3)"
ROLL = "begins a file that is ready; once for each file of the log"
CACHE = "goes to the page cache"
VOTE = "a term or a vote is on the disk before the answer; once for each election"
PROC = "reads /proc, which no disk backs"
MAINTENANCE = "storage/log/background_maintenance.py:BackgroundMaintenance"
SWITCH = "a shipped checkpoint takes the log's place; once for each member that lacks too much of the log"
ALLOWED: dict[str, str] = {
    "fdatasync storage/log/state_file.py:StateFile.save": VOTE,
    "pwritev storage/log/state_file.py:StateFile.save": VOTE,
    "fdatasync storage/log/writer.py:LogWriter.flush": FLUSH,
    "fdatasync storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "open storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "pwritev storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "pwritev storage/log/writer.py:LogWriter._write_out": CACHE,
    f"fsync {MAINTENANCE}.adopt_installed": SWITCH,
    f"open {MAINTENANCE}.adopt_installed": SWITCH,
    f"os.rename {MAINTENANCE}.adopt_installed": SWITCH,
    f"os.listdir {MAINTENANCE}._remove_other_checkpoints": SWITCH,
    "open broker/metrics/pages.py:pages.<locals>.metrics": PROC,
    "os.listdir broker/metrics/pages.py:pages.<locals>.metrics": PROC,
}
MOST = 13
"""So many are allowed. A number that may only be lowered."""


def unknown(found: set[str]) -> list[str]:
    return sorted(found - ALLOWED.keys())


async def work(client: Client, topic: str) -> None:
    for _ in range(30):  # several log files
        assert (await client.produce(topic, batch(b"x" * 150_000))).error_code == 0
    await client.fetch(topic, 0)


async def test_a_node_alone(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker(lockstep_metrics_listener="127.0.0.1:0", log_flush="always")
    client = await Client.connect(broker.port)
    with traced(monkeypatch) as found:
        await client.create("t")
        await work(client, "t")
        await broker.enforce_retention()
        await broker.compact()
        for path in ("/", "/metrics", "/health", "/ping", "/buildinfo"):
            assert (await get(broker.metrics_port, path)).status == 200
    await client.close()
    assert unknown(found) == []


async def test_a_cluster(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await start_cluster(3, log_flush="always")
    await cluster.settled()
    leading, client = await cluster.create("t")
    with traced(monkeypatch) as found:
        await work(client, "t")
        await (await cluster.client(1)).create("u")
        cluster.brokers[leading].groups[1].transfer_to_best()
        await cluster.until(lambda: cluster.leader_of(1) not in (None, leading), "another leader")
        for broker in cluster.brokers.values():
            await broker.enforce_retention()
            await broker.compact()
    assert unknown(found) == []


async def test_topics_come_and_go(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await start_cluster(3, log_flush="always", lockstep_data_groups="1")
    await cluster.settled()
    leading, client = await cluster.create("t")
    with traced(monkeypatch) as found:
        for name in ("u", "v"):
            await client.create(name, partitions=2)
            await work(client, name)
        records = DeleteRecordsTopic(name="u", partitions=[DeleteRecordsPartition(offset=20)])
        trimmed = await client.call(DeleteRecordsRequest(topics=[records], timeout_ms=10_000), 2)
        assert trimmed.topics[0].partitions[0].error_code == 0
        gone = await client.call(DeleteTopicsRequest(topic_names=["u", "v"], timeout_ms=10_000), 5)
        assert [each.error_code for each in gone.responses] == [0, 0]
        await work(client, "t")
        await cluster.brokers[leading].enforce_retention()
        described = await client.call(DescribeLogDirsRequest(), 4)
        assert described.results[0].error_code == 0
    assert unknown(found) == []


async def test_transactions_and_groups(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await start_cluster(3, log_flush="always", group_initial_rebalance_delay_ms="0")
    await cluster.settled()
    await cluster.create("t")
    with traced(monkeypatch) as found:
        producer = await Producer.of(cluster, "id")
        for commits in (True, False, True):
            await producer.write("t", 0, b"x" * 1000)
            assert await producer.end(commits) == 0
        await producer.close()
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            await asyncio.wait_for(consumer.getone(), 20)
            await consumer.commit()
        finally:
            await consumer.stop()
    assert unknown(found) == []


async def test_nodes_come_and_go(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fourth node takes over a log group, of which it is shipped a checkpoint; the first one is removed."""
    cluster = await start_cluster(3, log_flush="always", lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"x" * 150_000] * 30, 1)
    leading = cluster.leader_of(1)
    assert leading is not None
    records = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=25)])
    request = DeleteRecordsRequest(topics=[records], timeout_ms=10_000)
    assert (await (await cluster.client(leading)).call(request, 2)).topics[0].partitions[0].error_code == 0
    for broker in cluster.brokers.values():
        await broker.enforce_retention()
    await cluster.start(4)
    await cluster.until(lambda: 4 in nodes(cluster), "fourth node")
    with traced(monkeypatch) as found:
        async with AdminClient(cluster.bootstrap_servers) as asking:
            await admin.add(asking, 4, 30)
            await cluster.until(lambda: hosted(cluster) == placed(cluster), "end of groups that moved away")
            await admin.remove(asking, 1, 60)
        await cluster.until(lambda: sorted(cluster.brokers[1].groups) == [0], "end of the drained groups")
    assert unknown(found) == []


async def test_a_player_in_the_broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker(log_flush="always")
    player = PlayerInBroker(
        parse('player = "p"\ntopic = "t"\n[route]\nby = "all"\n[targets.a]\naddress = "localhost:1"\n')
    )
    client = await Client.connect(broker.port)
    async with player(broker):
        with traced(monkeypatch) as found:
            await client.create("t")
            await work(client, "t")
    await client.close()
    assert unknown(found) == []


def test_a_call_that_blocks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with traced(monkeypatch) as found:
        write_flushed(tmp_path / "planted", "text")
    assert any(each.startswith("open broker/node/data_directory.py:") for each in found)
    assert any(each.startswith("fsync broker/node/data_directory.py:") for each in found)


def test_what_is_allowed_exists() -> None:
    assert len(ALLOWED) <= MOST
    for call in ALLOWED:
        path, _, function = call.split(" ")[1].partition(":")
        name = function.rpartition(".")[2]
        assert f"def {name}(" in (PACKAGE / path).read_text(), f"{call}: no longer there"
