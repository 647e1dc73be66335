"""DescribeQuorum: group 0's facts in Kafka's words."""

from __future__ import annotations

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_quorum import DescribeQuorumResponse
from lockstep.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from tests.broker.controller.api.conftest import ControllerCaller
from tests.broker.wire import Client
from tests.support.cases import each_case


async def describe(
    client: Client | ControllerCaller, version: int, *wanted: tuple[str, list[int]]
) -> DescribeQuorumResponse:
    topics = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in indexes])
        for name, indexes in wanted
    ]
    response: DescribeQuorumResponse = await client.call(DescribeQuorumRequest(topics=topics), version)
    assert response.error_code == 0
    return response


@pytest.mark.parametrize("version", range(3))
async def test_in_every_version(broker: Broker, client: Client, version: int) -> None:
    ends = []
    for name in ("t", "u"):
        await client.create(name)
        response = await describe(client, version, ("__cluster_metadata", [0]))
        (partition,) = response.topics[0].partitions
        (voter,) = partition.current_voters
        assert (partition.error_code, partition.leader_id, voter.replica_id) == (0, 1, 1)
        assert partition.leader_epoch == broker.groups[0].term
        assert partition.high_watermark == voter.log_end_offset == broker.groups[0].log.last_index + 1
        assert (voter.last_fetch_timestamp > 0) == (voter.last_caught_up_timestamp > 0) == (version >= 1)
        assert partition.observers == []
        ends.append(voter.log_end_offset)
    assert ends[0] < ends[1]
    nodes = [(node.node_id, [(each.name, each.port) for each in node.listeners]) for node in response.nodes]
    assert nodes == ([(1, [("PLAINTEXT", broker.port)])] if version >= 2 else [])


@each_case(
    "wanted",
    [
        [("t", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0]), ("t", [0])],
        [("", [-1])],
    ],
)
@each_case("version", [0, 2])
async def test_anything_else_is_unknown(
    caller: ControllerCaller, wanted: list[tuple[str, list[int]]], version: int
) -> None:
    response = await describe(caller, version, *wanted)
    assert [
        (topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in response.topics
    ] == wanted
    codes = {each.error_code for topic in response.topics for each in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_empty_request(caller: ControllerCaller) -> None:
    assert (await describe(caller, 2)).topics == []


async def test_a_node_that_does_not_lead_names_the_leader() -> None:
    caller = ControllerCaller((1, 2))
    caller.metadata.cluster.groups.clear()
    caller.metadata.report(2, {0: 7})
    (partition,) = (await describe(caller, 2, ("__cluster_metadata", [0]))).topics[0].partitions
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (error, 2, 7)
