"""AlterPartitionReassignments and ListPartitionReassignments: one broker moves nothing."""

from __future__ import annotations

import pytest

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
from tests.broker.wire import Client


@pytest.mark.parametrize("version", range(2))
async def test_alter(client: Client, version: int) -> None:
    await client.create("t")
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
    response: AlterPartitionReassignmentsResponse = await client.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    assert [
        (topic.name, each.partition_index, each.error_code, each.error_message is None)
        for topic in response.responses
        for each in topic.partitions
    ] == [(name, index, error, error == 0) for name, index, _, error in chosen]


async def test_list(client: Client) -> None:
    await client.create("t")
    wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, -1]) for name in ("t", "no")]
    for topics in (None, [], wanted):
        response = await client.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (0, [])
