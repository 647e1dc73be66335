"""Who is told to be in sync while a node is away, is back and has not caught up: the same on every node."""

from __future__ import annotations

from collections import Counter

import pytest

from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.node.cluster_node import ClusterNode
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.storage.raft.messages import Append, Install, Message
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.wire import batch

GROUP = 1
EVERY = {1, 2, 3}
STATUSES = 5
"""So many more of the leader's change nothing."""
BATCHES, BATCH_BYTES = 30, 190_000
"""More than a follower in full flow may lack (`broker/membership/group_view.py`)."""

Notification = list[tuple[set[int], set[int]]]


async def told(cluster: BrokerCluster, node_id: int) -> Notification:
    """Which replicas of t-0 are in sync and which are offline, as a node says it in three ways."""
    client = await cluster.client(node_id)
    asked = [MetadataRequestTopic(name="t")]
    named = await client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
    every = await client.call(MetadataRequest(topics=None), 12)
    described = await client.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    await client.close()
    topics = [each for answer in (named, every, described) for each in answer.topics if each.name == "t"]
    parts = [topic.partitions[0] for topic in topics]
    return [(set(part.isr_nodes), set(part.offline_replicas)) for part in parts]


async def all_tell(cluster: BrokerCluster, in_sync: set[int], offline: set[int]) -> None:
    """Every node that runs comes to say so."""

    async def they_do() -> bool:
        answers = [await told(cluster, node_id) for node_id in cluster.brokers]
        return all(answer == [(in_sync, offline)] * 3 for answer in answers)

    await cluster.until(they_do, f"word that {in_sync} are in sync and {offline} offline")


async def test_a_returning_node_is_in_sync_once_it_has_caught_up(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, hear = ClusterNode.receive, NodeRegistry.on_status
    heard: Counter[tuple[int, int]] = Counter()
    held: set[int] = set()

    def received(node: ClusterNode, number: int, message: Message) -> None:
        brings = number == GROUP and isinstance(message, Append | Install)
        if not (brings and node._settings.node_id in held):
            receive(node, number, message)

    def listened(nodes: NodeRegistry, node_id: int, status: Status) -> None:
        hear(nodes, node_id, status)
        heard[nodes.node_id, node_id] += 1

    monkeypatch.setattr(ClusterNode, "receive", received)
    monkeypatch.setattr(NodeRegistry, "on_status", listened)
    monkeypatch.setattr("lockstep.broker.peers.peer_rpc.STATUS_SECONDS", 0.05)
    cluster = await start_cluster(3, lockstep_data_groups="1", auto_leader_rebalance_enable="false")

    async def stays_out(late: int) -> None:
        """All live, and each says that one is not in sync, however often it is asked."""
        leader = cluster.leader_of(GROUP)
        assert leader is not None
        nodes = [broker.assembly.nodes for broker in cluster.brokers.values()]
        await cluster.until(
            lambda: all(each.alive() == EVERY and each.live_leader_of(GROUP) == leader for each in nodes),
            "leader among three that live",
        )
        before = heard.copy()

        async def is_over() -> bool:
            for node_id in EVERY:
                assert await told(cluster, node_id) == [(EVERY - {late}, set())] * 3
            return all(heard[each, leader] >= before[each, leader] + STATUSES for each in EVERY - {leader})

        await cluster.until(is_over, "words of the leader")

    await cluster.settled()
    await (await cluster.client(1)).create("t")
    await all_tell(cluster, EVERY, set())
    leader = cluster.leader_of(GROUP)
    assert leader is not None
    late, heir = sorted(EVERY - {leader})
    await cluster.stop(late)
    await all_tell(cluster, EVERY - {late}, {late})
    writer = await cluster.client(leader)
    for _ in range(BATCHES):
        assert (await writer.produce("t", batch(bytes(BATCH_BYTES)))).error_code == 0
    held.add(late)
    await cluster.start(late)
    await stays_out(late)
    await TransferRequests(cluster.brokers[leader].assembly.peer_rpc).begin(GROUP, heir)
    await cluster.until(lambda: cluster.leader_of(GROUP) == heir, "next leader")
    await stays_out(late)
    held.clear()
    await all_tell(cluster, EVERY, set())


async def test_a_leader_is_in_sync_whatever_was_reported_before(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await (await cluster.client(1)).create("t")
    await all_tell(cluster, EVERY, set())
    asked = next(each for each in EVERY if each != cluster.leader_of(GROUP))
    nodes = cluster.brokers[asked].assembly.nodes
    leader, term = nodes.leader_of(GROUP)
    nodes.set_out_of_sync(GROUP, term + 1, (leader, asked))
    assert await told(cluster, asked) == [(EVERY - {asked}, set())] * 3
