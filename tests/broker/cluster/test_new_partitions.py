"""New partitions in a cluster, whose leader may hear of them later than the node that is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.metadata.api import metadata
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.replica_state import ReplicaStates
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.appends import idempotent
from tests.broker.conftest import StartCluster
from tests.broker.wire import Client, produce_request


async def leader(client: Client, name: str) -> tuple[int, int]:
    """The error and the leader of partition 0, the topic created where it is missing."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (topic,) = (await client.call(request, 12)).topics
    if not topic.partitions:
        return topic.error_code, -1
    return topic.partitions[0].error_code, topic.partitions[0].leader_id


async def test_five_batches_in_flight_to_the_leader_that_was_named(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="3")
    await cluster.settled()
    clients = {node_id: await cluster.client(node_id) for node_id in cluster.brokers}
    for number in range(15):
        name, asked = f"t{number}", clients[1 + number % 3]
        error, leads = await leader(asked, name)
        while error:
            error, leads = await leader(asked, name)
        sent = [produce_request(name, idempotent(sequence)) for sequence in range(5)]
        for request in sent:
            clients[leads].send(request, 9)
        for request in sent:
            _, response = await clients[leads].receive(request, 9)
            (told,) = response.responses[0].partition_responses  # type: ignore[attr-defined]
            assert told.error_code == 0, (name, asked, leads)


async def test_a_leader_that_gets_a_topic_late(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await cluster.led_by(METADATA_GROUP, 1)
    await cluster.led_by(1, 2)
    asked, leading = await cluster.client(1), await cluster.client(2)
    late, held = cluster.brokers[2].groups[METADATA_GROUP], list[Any]()
    await cluster.until(
        lambda: cluster.brokers[1].assembly.nodes.live_leader_of(1) == 2, "a leader that others know of"
    )
    receive = late.receive
    with monkeypatch.context() as stalled:
        stalled.setattr(late, "receive", held.append)
        assert await leader(asked, "t") == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        refused = await leading.produce("t", idempotent(0))
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for message in held:
        receive(message)

    async def is_named() -> bool:
        return await leader(asked, "t") == (0, 2)

    await cluster.until(is_named, "a leader that serves the topic")
    early = await leading.produce("t", idempotent(1))
    later = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert early.error_code in later, "a leader that is new asks for both once more"
    for sequence in range(3):
        told = await leading.produce("t", idempotent(sequence))
        assert (told.error_code, told.base_offset) == (0, sequence)


async def test_an_answer_that_waits_for_a_leader_is_built_twice_and_leaves_at_once(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building it at each look cost a request for many topics fifty times its price, all on the loop."""
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await cluster.led_by(METADATA_GROUP, 1)
    await cluster.led_by(1, 2)
    asked = await cluster.client(1)
    nodes = cluster.brokers[1].assembly.nodes
    await cluster.until(lambda: nodes.live_leader_of(1) == 2, "a leader that others know of")
    built: list[int] = []

    class Counted(ReplicaStates):
        def __init__(self, *sources: Any) -> None:
            super().__init__(*sources)
            built.append(1)

    late, held = cluster.brokers[2].groups[METADATA_GROUP], list[Any]()
    with monkeypatch.context() as stalled:
        stalled.setattr(metadata, "ReplicaStates", Counted)
        stalled.setattr(metadata, "SERVED_WAIT_SECONDS", 30.0)
        stalled.setattr(late, "receive", held.append)
        answer = asyncio.ensure_future(leader(asked, "t"))
        await cluster.until(lambda: bool(nodes.on_notification), "a request that waits")
        stalled.undo()
        stalled.setattr(metadata, "ReplicaStates", Counted)
        for message in held:
            late.receive(message)
        assert await asyncio.wait_for(answer, 10) == (0, 2)
    assert len(built) == 2
    assert not nodes.on_notification
