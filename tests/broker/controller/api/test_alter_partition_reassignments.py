"""AlterPartitionReassignments and ListPartitionReassignments: one broker moves nothing."""

from __future__ import annotations

from lockstep.broker.metadata.metadata_image import finish_reassignment_command, place_command
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lockstep.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.controller.api.conftest import ControllerCaller
from tests.support.cases import each_case


@each_case("version", range(2))
async def test_alter(caller: ControllerCaller, version: int) -> None:
    await caller.create("t")
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    chosen: list[tuple[str, int, list[int] | None, int]] = [
        ("t", 0, [1], 0),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [2], refused),
        ("t", 0, [1, 2], refused),
        ("t", 0, [1, 1], refused),
        ("t", 0, [], refused),
        ("t", 0, [-1], refused),
        ("t", 1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            for name, index, replicas, _ in chosen
        ]
    )
    response: AlterPartitionReassignmentsResponse = await caller.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    assert [
        (topic.name, each.partition_index, each.error_code, each.error_message is None)
        for topic in response.responses
        for each in topic.partitions
    ] == [(name, index, error, error == 0) for name, index, _, error in chosen]


async def test_list(caller: ControllerCaller) -> None:
    await caller.create("t")
    wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, -1]) for name in ("t", "no")]
    for topics in (None, [], wanted):
        response = await caller.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (0, [])


async def test_a_whole_group_moves_and_is_listed_until_it_has_arrived() -> None:
    caller = ControllerCaller((1, 2, 3, 4))
    caller.metadata.record(place_command({1: (1, 2, 3)}))
    await caller.create("t", 2)

    async def move(*indexes: int) -> list[int]:
        partitions = [ReassignablePartition(partition_index=each, replicas=[4, 2, 1]) for each in indexes]
        topic = ReassignableTopic(name="t", partitions=partitions)
        response: AlterPartitionReassignmentsResponse = await caller.call(
            AlterPartitionReassignmentsRequest(topics=[topic]), 1
        )
        return [each.error_code for each in response.responses[0].partitions]

    assert await move(0) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT], "partition 1 is not named"
    assert await move(0, 1) == [0, 0]
    assert caller.metadata.image.placement[1] == (4, 2, 1)
    (topic,) = (await caller.call(ListPartitionReassignmentsRequest(topics=None), 0)).topics
    assert [
        (each.partition_index, each.adding_replicas, each.removing_replicas) for each in topic.partitions
    ] == [(0, [4], [3]), (1, [4], [3])]
    caller.metadata.record(finish_reassignment_command([1]))
    assert (await caller.call(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []


async def test_another_node_than_the_controller_moves_nothing() -> None:
    caller = ControllerCaller((1, 2))
    caller.topics.is_controller = False
    response = await caller.call(AlterPartitionReassignmentsRequest(topics=[]), 1)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
