"""ElectLeaders: the one replica leads already."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.broker.wire import Client


async def elect(
    client: Client, wanted: list[tuple[str, list[int]]] | None, version: int = 2, kind: int = 0
) -> tuple[int, list[tuple[str, int, int]]]:
    topics = None
    if wanted is not None:
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted]
    request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000)
    if version >= 1:
        request.election_type = kind
    response: ElectLeadersResponse = await client.call(request, version)
    results = response.replica_election_results
    if wanted is None:
        assert all(each.partition_result == [] for each in results)
        return response.error_code, [(each.topic, -1, 0) for each in results]
    return response.error_code, [
        (topic.topic, each.partition_id, each.error_code)
        for topic in results
        for each in topic.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
async def test_in_every_version(client: Client, version: int) -> None:
    await client.create("t", 2)
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = [("t", [0, 1, 1, 2, -1]), ("no", [0]), ("", [0]), ("t", [0])]
    assert await elect(client, wanted, version) == (
        0,
        [
            ("t", 0, needless),
            ("t", 1, needless),
            ("t", 1, needless),
            ("t", 2, unknown),
            ("t", -1, unknown),
            ("no", 0, unknown),
            ("", 0, unknown),
            ("t", 0, needless),
        ],
    )
    assert await elect(client, None, version) == (0, [("t", -1, 0)])
    assert await elect(client, [], version) == (0, [])


async def test_kinds(client: Client) -> None:
    await client.create("t")
    assert await elect(client, [("t", [0])], kind=1) == (0, [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)])
    invalid = ErrorCode.INVALID_REQUEST
    assert await elect(client, [("t", [0])], kind=7) == (invalid, [("t", 0, invalid)])
    assert await elect(client, None, kind=7) == (invalid, [])
    assert await elect(client, [], kind=7) == (0, [])
