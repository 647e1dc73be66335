"""A cluster whose log groups for topics have one replica each (`lockstep.data.replicas=1`)."""

from __future__ import annotations

import pytest

from lockstep.broker.settings.settings_reader import from_texts
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client as AdminClient
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.storage.log.segment_files import segment_name
from lockstep.storage.log.state_file import SLOT_BYTES, STATE_NAME
from lockstep.storage.types import CorruptLog
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.wire import batch, records_of


async def two_nodes(start_cluster: StartCluster, **texts: str) -> BrokerCluster:
    cluster = await start_cluster(2, lockstep_data_replicas="1", lockstep_data_groups="3", **texts)
    await cluster.settled()
    return cluster


def replicas(cluster: BrokerCluster) -> dict[int, tuple[int, ...]]:
    return dict(cluster.controller.assembly.cluster.image.placement)


async def leaders(cluster: BrokerCluster, node: int = 1) -> dict[int, int]:
    """The leader of each partition of t, as a node tells it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    (topic,) = (await (await cluster.client(node)).call(request, 9)).topics
    return {each.partition_index: each.leader_id for each in topic.partitions}


async def write(cluster: BrokerCluster, payload: bytes) -> None:
    """One record to each partition, at its leader."""
    for index, leader in (await leaders(cluster)).items():
        done = await (await cluster.client(leader)).produce("t", batch(payload), index)
        assert done.error_code == ErrorCode.NONE


async def contents(cluster: BrokerCluster) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {}
    for index, leader in (await leaders(cluster)).items():
        answer = await (await cluster.client(leader)).fetch("t", 0, index)
        found[index] = [record.value for record in records_of(answer)]
    return found


async def test_each_partition_is_on_one_node_and_waits_for_it(start_cluster: StartCluster) -> None:
    cluster = await two_nodes(start_cluster)
    assert replicas(cluster) == {0: (1, 2), 1: (1,), 2: (2,), 3: (1,)}
    client = await cluster.client(1)
    await client.create("t", 3)
    assert sorted((await leaders(cluster)).values()) == [1, 1, 2]
    await write(cluster, b"one")
    (on_second,) = (index for index, leader in (await leaders(cluster)).items() if leader == 2)
    await cluster.stop(2)

    async def is_without_leader() -> bool:
        return (await leaders(cluster))[on_second] == -1

    await cluster.until(is_without_leader, "partition without a leader")
    here = next(index for index in range(3) if index != on_second)
    assert (await client.produce("t", batch(b"two"), here)).error_code == ErrorCode.NONE
    await cluster.start(2)
    await cluster.settled()
    assert (await contents(cluster))[on_second] == [b"one"]
    assert (await contents(cluster))[here] == [b"one", b"two"]


async def test_more_replicas_are_refused_as_nobody_would_have_them(start_cluster: StartCluster) -> None:
    cluster = await two_nodes(start_cluster)
    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
    answer = await (await cluster.client(1)).call(CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 5)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "at most 1 replica here" in answer.topics[0].error_message


async def test_a_node_that_comes_takes_groups_and_their_records(start_cluster: StartCluster) -> None:
    cluster = await two_nodes(start_cluster)
    await (await cluster.client(1)).create("t", 3)
    await write(cluster, b"one")
    await cluster.start(3)
    await cluster.settled()
    async with AdminClient(cluster.bootstrap_servers, client_id="test") as client:
        await admin.add(client, 3, 30)
    assert sorted(nodes for group, nodes in replicas(cluster).items() if group) == [(1,), (2,), (3,)]

    async def is_led_everywhere() -> bool:
        return sorted((await leaders(cluster)).values()) == [1, 2, 3]

    await cluster.until(is_led_everywhere, "leader on each node")
    assert await contents(cluster) == {index: [b"one"] for index in range(3)}


@pytest.mark.parametrize("setting", ["1", "3"])
async def test_what_is_corrupt_is_not_cut_off_as_no_other_node_has_it(
    start_cluster: StartCluster, setting: str
) -> None:
    """Whether the node's settings say that there is one replica, or only what is recorded."""
    cluster = await two_nodes(start_cluster)
    await (await cluster.client(1)).create("t", 3)
    await write(cluster, b"one")
    await cluster.stop(2)
    cluster._texts["lockstep.data.replicas"] = setting
    directory = cluster.directory / "2" / "groups" / "2"
    (directory / STATE_NAME).write_bytes(bytes(2 * SLOT_BYTES))
    assert (directory / segment_name(1)).exists()
    with pytest.raises(CorruptLog):
        await cluster.start(2)


def test_one_replica_is_a_majority_and_the_most_there_can_be() -> None:
    texts = {"lockstep.peers": "1@localhost:1,2@localhost:2,3@localhost:3", "lockstep.data.replicas": "1"}
    settings = from_texts(texts)
    assert (settings.majority, settings.local_data_groups, settings.data_groups) == (1, 1, 3)
    for name in ("default.replication.factor", "min.insync.replicas"):
        with pytest.raises(ValueError, match=name):
            from_texts({**texts, name: "2"})
    with pytest.raises(ValueError, match="must be one of 1, 3"):
        from_texts({**texts, "lockstep.data.replicas": "2"})
