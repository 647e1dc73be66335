"""What the collector reads, against the broker it reads it from; names and words against the document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from lockstep.broker.controller.log_group_report import Document
from lockstep.broker.metrics import exposition
from lockstep.broker.metrics.exposition import GroupCollector, NodeCollector
from lockstep.broker.server import Broker
from lockstep.build_info import VERSION, commit
from lockstep.protocol.errors import ErrorCode as E
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log_group import LogGroup
from tests.broker.conftest import StartCluster
from tests.broker.locks.asking import lock
from tests.broker.metrics.scraping import numbers
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
IN_SYNC = "lockstep_log_group_follower_in_sync"
ROW = re.compile(r"^\| `(lockstep_\w+)` \| (counter|gauge) \| ([\w, ]*?) ?\| (.+) \|$", re.MULTILINE)


def collectors(broker: Broker) -> tuple[Collector, ...]:
    """The collectors of a broker's metrics listener."""
    found = broker.assembly
    node = NodeCollector(found.cluster, found.nodes, found.connections, found.fetch_purgatory, lambda: "")
    return node, GroupCollector(found.cluster, found.nodes, found.appenders, found.transactions)


def read(broker: Broker) -> dict[str, float]:
    registry = CollectorRegistry()
    for each in collectors(broker):
        registry.register(each)
    return numbers(generate_latest(registry).decode())


def test_each_metric_is_in_the_document_in_the_same_words(broker: Broker) -> None:
    told = {}
    for metric in (each for one in collectors(broker) for each in one.collect()):
        labels = {", ".join(sample.labels) for sample in metric.samples} or {"log_group, node"}
        assert len(labels) == 1
        name = metric.name + ("_total" if metric.type == "counter" else "")
        told[name] = metric.type, labels.pop(), metric.documentation
    rows = {name: (kind, labels, words) for name, kind, labels, words in ROW.findall(DOCUMENT.read_text())}
    assert rows == told


def test_of_the_node(broker: Broker) -> None:
    told = read(broker)
    assert told[f'lockstep_build_info{{commit="{commit()}",version="{VERSION}"}}'] == 1
    assert (told["lockstep_healthy"], told["lockstep_nodes"], told["lockstep_nodes_alive"]) == (1, 1, 1)


async def test_of_clients(broker: Broker, client: Client) -> None:
    await client.create("t", partitions=3)
    for _ in range(4):
        await client.produce("t", batch(b"v"))
    other = await Client.connect(broker.port)
    await other.fetch("t", 0)
    told = read(broker)
    assert told["lockstep_partitions"] == told['lockstep_log_group_partitions{log_group="1"}'] == 3
    assert told["lockstep_connections"] == 2
    assert told['lockstep_requests_total{api="Produce"}'] == 4
    assert told['lockstep_requests_total{api="CreateTopics"}'] == 1
    assert told['lockstep_requests_total{api="Fetch"}'] == 1
    assert told['lockstep_requests_total{api="EndTxn"}'] == 0
    closed = told["lockstep_connections_closed_total"]
    await other.close()
    await other.writer.wait_closed()
    await client.fetch("t", 0)
    assert read(broker)["lockstep_connections_closed_total"] == closed + 1


async def test_of_a_log_group(broker: Broker, client: Client) -> None:
    await client.create("t")
    before = read(broker)
    assert (await client.produce("t", batch(b"x" * 1000, b"y"))).error_code == 0
    after = read(broker)

    def grown(name: str, labels: str = 'log_group="1"') -> float:
        return after[f"{name}{{{labels}}}"] - before[f"{name}{{{labels}}}"]

    assert grown("lockstep_log_group_next_lsn") == 2
    indexes = (
        "lockstep_log_group_last_index",
        "lockstep_log_group_commit_index",
        "lockstep_log_group_applied_index",
    )
    assert [grown(name) for name in indexes] == [1, 1, 1]
    assert grown("lockstep_log_group_log_bytes") > 1000
    assert grown("lockstep_log_group_written_bytes_total", 'log_group="1",purpose="log"') > 1000
    assert grown("lockstep_log_group_flushes_total") >= 1
    assert grown("lockstep_log_group_flush_seconds_total") > 0
    group = broker.groups[1]
    assert after['lockstep_log_group_term{log_group="1"}'] == group.term
    assert after['lockstep_log_group_log_bytes{log_group="1"}'] == group.log.size_bytes
    assert (
        after['lockstep_log_group_leader{log_group="1"}']
        == after['lockstep_log_group_leader_known{log_group="1"}']
        == 1
    )
    assert 'lockstep_log_group_follower_lag_entries{log_group="1",node="1"}' not in after


def test_a_full_disk(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(broker)['lockstep_log_group_disk_full{log_group="1"}'] == 0
    monkeypatch.setattr(DataLog, "disk_full", property(lambda self: True))
    assert read(broker)['lockstep_log_group_disk_full{log_group="1"}'] == 1


def test_a_write_that_fails_on_a_disk_with_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(broker)['lockstep_log_group_write_failed{log_group="1"}'] == 0
    monkeypatch.setattr(
        DataLog, "write_error", property(lambda self: "7.index: [Errno 5] Input/output error")
    )
    after = read(broker)
    assert after['lockstep_log_group_write_failed{log_group="1"}'] == 1
    assert after['lockstep_log_group_disk_full{log_group="1"}'] == 0


async def test_refusals_by_an_estimate_are_counted_apart(broker: Broker, client: Client) -> None:
    """Here all that were not raised count as if they had been, as on a topic that got locks later."""
    await client.create("t", lockstep_locks="true")
    assert await lock(client, -1, write_lock="a") == 0
    assert await lock(client, 0, write_lock="a") == 1
    checks = broker.assembly.local_groups.appenders[1].locks
    assert checks is not None
    (marks,) = checks.table.partitions.values()
    marks.floor = 1
    assert await lock(client, 0, write_lock="never/raised") == -E.POLICY_VIOLATION
    assert await lock(client, 0, write_lock="a") == -E.POLICY_VIOLATION
    told = read(broker)
    names = ("accepted", "refused", "refused_by_estimate")
    assert [told[f'lockstep_locks_{name}_total{{log_group="1"}}'] for name in names] == [2, 1, 1]


async def test_of_followers(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    leader = cluster.leader_of(1)
    assert leader is not None
    followers = sorted(set(cluster.brokers) - {leader})

    def of_followers(name: str) -> dict[int, float]:
        told = read(cluster.brokers[leader])
        keys = {node: f'{name}{{log_group="1",node="{node}"}}' for node in (leader, *followers)}
        return {node: told[key] for node, key in keys.items() if key in told}

    def all_in_sync() -> bool:
        lags, in_sync = map(of_followers, ("lockstep_log_group_follower_lag_entries", IN_SYNC))
        return lags == dict.fromkeys(followers, 0) and in_sync == dict.fromkeys(followers, 1)

    await cluster.until(all_in_sync, "followers in sync")
    for node in followers:
        told = read(cluster.brokers[node])
        assert told['lockstep_log_group_leader{log_group="1"}'] == 0
        assert told['lockstep_log_group_leader_known{log_group="1"}'] == 1
        assert not any(key.startswith(f'{IN_SYNC}{{log_group="1"') for key in told), "only the leader knows"

    await cluster.stop(followers[0])
    client = await cluster.client(leader)
    await client.create("t", partitions=3)
    await cluster.until(
        lambda: of_followers(IN_SYNC) == {followers[0]: 0, followers[1]: 1}, "one out of sync"
    )
    behind = of_followers("lockstep_log_group_follower_lag_entries")
    assert behind[followers[0]] > 0 == behind[followers[1]]


def test_followers_of_whom_little_is_known(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 2 is taken in again under another member id; node 3 has not been heard since the election."""

    def told(group: LogGroup) -> Document:
        def member(node: int, lag: int | None) -> Document:
            return {"node": node, "lag": lag, "in_sync": False}

        voters = [member(1, 0), member(2, 7), member(3, None)]
        return {"leader": 1, "voters": voters, "learners": [member(2, 9)]}

    monkeypatch.setattr(exposition, "report", told)
    found = read(broker)
    labels = {node: f'{{log_group="1",node="{node}"}}' for node in (1, 2, 3)}
    lags = [found.get(f"lockstep_log_group_follower_lag_entries{labels[node]}") for node in labels]
    assert lags == [None, 7, None]
    assert [found.get(IN_SYNC + labels[node]) for node in labels] == [None, 0, 0]


async def test_of_transactions(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, lockstep_data_groups="1")
    await cluster.settled()
    await (await cluster.client(1)).create("t")
    producer = await Producer.of(cluster, "id")

    def counts() -> list[float]:
        """Of all nodes: only who coordinates counts, and each that has a copy knows the producer."""
        told = [read(broker) for broker in cluster.brokers.values()]
        names = ("transactional_ids", "transactions_open", "transactions_ending")
        keys = [*(f"lockstep_{name}" for name in names), 'lockstep_producers{log_group="1"}']
        return [sum(each[key] for each in told) for key in keys]

    assert counts() == [1, 0, 0, 0]
    await producer.write("t", 0, b"v")
    assert counts() == [1, 1, 0, 2]
    assert await producer.end(True) is E.NONE
    await cluster.until(lambda: counts() == [1, 0, 0, 2], "the end of the transaction")
    await producer.close()
