"""Metadata and DescribeCluster: what exists, what is made, and how a client reaches it."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.metadata.api import metadata
from lockstep.broker.metadata.metadata_image import NodeEntry
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from lockstep.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client

NOT_REQUESTED = -(2**31)


async def ask(client: Client, *names: str, version: int = 13, create: bool = False) -> dict[str | None, int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
    )
    response: MetadataResponse = await client.call(request, version)
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
async def test_every_version(broker: Broker, client: Client, version: int) -> None:
    topic_id = await client.create("t", 2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response: MetadataResponse = await client.call(request, version)
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [
        (1, "127.0.0.1", broker.port)
    ]
    topic: MetadataResponseTopic = response.topics[0]
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert [
        (each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes, each.error_code)
        for each in topic.partitions
    ] == [(0, 1, [1], [1], 0), (1, 1, [1], [1], 0)]
    assert topic.topic_authorized_operations == NOT_REQUESTED
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == broker.assembly.cluster.cluster_id
        assert response.cluster_id is not None and len(response.cluster_id) == 22
    if version >= 7:
        assert topic.partitions[0].leader_epoch == broker.groups[1].term
    if version >= 10:
        assert topic.topic_id == topic_id


async def test_all_topics_are_up_to_date_for_every_kind_of_client(broker: Broker, client: Client) -> None:
    async def names(version: int, operations: bool = False) -> list[tuple[str | None, int]]:
        request = MetadataRequest(topics=None, include_topic_authorized_operations=operations)
        response: MetadataResponse = await client.call(request, version)
        return [(topic.name, topic.topic_authorized_operations) for topic in response.topics]

    for version in (1, 9, 9, 13, 1):
        assert await names(version) == []
    await client.create("t")
    for version in (1, 9, 9, 13, 1):
        assert await names(version) == [("t", NOT_REQUESTED)]
    assert (await names(13, True))[0][1] > 0
    assert await names(13) == [("t", NOT_REQUESTED)]
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    assert await names(9) == []


async def test_makes_topics(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="3", lockstep_max_topics_per_metadata="5")
    client = await Client.connect(broker.port)
    assert await ask(client, "made", "b/d", create=True) == {
        "made": 0,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    topic = broker.assembly.cluster.topic("made")
    assert topic is not None
    assert len(topic.partitions) == 3
    assert await ask(client, "older", version=3, create=True) == {"older": 0}
    assert await ask(client, "a.b", create=True) == {"a.b": 0}
    assert await ask(client, "a_b", create=True) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    made = await ask(client, *(f"m{number}" for number in range(8)), create=True)
    assert list(made.values()) == [0] * 5 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


async def test_many_clients_request_one_new_topic(broker: Broker) -> None:
    clients = [await Client.connect(broker.port) for _ in range(20)]
    answers = await asyncio.gather(*(ask(client, "t", create=True) for client in clients))
    assert answers == [{"t": 0}] * 20
    assert len(broker.assembly.cluster.topics()) == 1


async def test_advertised_listeners(start_broker: StartBroker) -> None:
    broker = await start_broker(
        listeners="IN://127.0.0.1:0,OUT://127.0.0.1:0,ANY://0.0.0.0:0",
        advertised_listeners="OUT://broker.example:4321",
        **{"listener_security_protocol_map": "IN:PLAINTEXT,OUT:PLAINTEXT,ANY:PLAINTEXT"},
    )
    told = {}
    for listener, sockets in broker._sockets.items():
        port = sockets[0].getsockname()[1]
        client = await Client.connect(port)
        response: MetadataResponse = await client.call(MetadataRequest(topics=[]), 13)
        told[listener.name] = (response.brokers[0].host, response.brokers[0].port, port)
    assert told["IN"][:2] == ("127.0.0.1", told["IN"][2])
    assert told["OUT"][:2] == ("broker.example", 4321)
    assert told["ANY"][:2] == ("127.0.0.1", told["ANY"][2])  # the address the client itself used


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
@pytest.mark.parametrize("listener", ["PLAINTEXT", "ANOTHER"])
async def test_a_leader_without_the_listener(
    broker: Broker,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    error: ErrorCode,
    listener: str,
) -> None:
    """As Kafka: nobody is told of a leader that is none of the brokers of the same answer."""
    await client.create("t")
    image = broker.assembly.cluster.image
    monkeypatch.setitem(image.nodes, 2, NodeEntry(2, {listener: ("there.example", 9092)}))
    monkeypatch.setattr(NodeRegistry, "live_leader_of", lambda self, group_id: 2)
    monkeypatch.setattr(NodeRegistry, "is_alive", lambda self, node_id: True)
    monkeypatch.setattr(NodeRegistry, "has_followed", lambda self, node_id, index: True)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response: MetadataResponse = await client.call(request, version)
    (partition,) = response.topics[0].partitions
    if listener == "PLAINTEXT":
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 2)
        assert [each.node_id for each in response.brokers] == [1, 2]
    else:
        assert (partition.error_code, partition.leader_id) == (error, -1)
        assert [each.node_id for each in response.brokers] == [1]
    everything: MetadataResponse = await client.call(MetadataRequest(topics=None), version)
    assert everything.topics[0].partitions == [partition]
    described = await client.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    (page,) = described.topics[0].partitions
    assert (page.error_code, page.leader_id) == (ErrorCode.NONE, partition.leader_id)
    del image.nodes[2]
    broker.assembly.cluster.on_change()  # as a change of the image calls it
    gone: MetadataResponse = await client.call(request, version)
    (partition,) = gone.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_a_leader_is_named_once_it_serves_the_partition(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may hear of a topic some milliseconds later: it would refuse batches (KAFKA-15591)."""
    nodes, cluster = broker.assembly.nodes, broker.assembly.cluster
    await client.create("old")
    reached = cluster.metadata_index
    await client.create("new")
    monkeypatch.setitem(cluster.image.nodes, 2, NodeEntry(2, {"PLAINTEXT": ("there.example", 9092)}))
    monkeypatch.setattr(NodeRegistry, "live_leader_of", lambda self, group_id: 2)
    monkeypatch.setattr(NodeRegistry, "is_alive", lambda self, node_id: True)
    monkeypatch.setattr(metadata, "SERVED_WAIT_SECONDS", 0.02)
    nodes.statuses[2] = Status(applied=reached)

    async def leaders(*names: str) -> dict[str | None, tuple[int, int]]:
        asked = [MetadataRequestTopic(name=name) for name in names] if names else None
        response: MetadataResponse = await client.call(MetadataRequest(topics=asked), 12)
        return {
            topic.name: (topic.partitions[0].error_code, topic.partitions[0].leader_id)
            for topic in response.topics
        }

    known, waiting = (0, 2), (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert await leaders("old", "new") == await leaders() == {"old": known, "new": waiting}
    monkeypatch.setattr(metadata, "SERVED_WAIT_SECONDS", 10)
    broker.assembly.loop.call_later(0.05, nodes.on_status, 2, Status(applied=cluster.metadata_index))
    assert await leaders("new") == {"new": known}, "it is waited for a little"
    assert await leaders() == {"old": known, "new": known}, "nothing outdated is kept"
