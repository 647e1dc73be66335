"""DescribeTopicPartitions: order, pages, cursors, and lists that are never null."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.metadata.api.conftest import MetadataCaller

Page = tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]
"""(topic, error, partitions) and the cursor of the next page."""


async def call(
    caller: MetadataCaller, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    begin = Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=begin
    )
    response: DescribeTopicPartitionsResponse = await caller.call(request, 0)
    return response


async def page(
    caller: MetadataCaller, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Page:
    response = await call(caller, *names, limit=limit, cursor=cursor)
    following = response.next_cursor
    return (
        [
            (each.name, each.error_code, [partition.partition_index for partition in each.partitions])
            for each in response.topics
        ],
        (following.topic_name, following.partition_index) if following is not None else None,
    )


@pytest.fixture
def topics(caller: MetadataCaller) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        caller.create(name, count)


async def test_a_topic(caller: MetadataCaller) -> None:
    topic_id = caller.create("t")
    (topic,) = (await call(caller, "t")).topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("t", topic_id, False)
    assert topic.topic_authorized_operations == 3576
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], []), "null kills tools"
    assert partition.offline_replicas == []


@pytest.mark.usefixtures("topics")
async def test_order_and_errors(caller: MetadataCaller) -> None:
    every = [("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])]
    assert await page(caller) == (every, None)
    assert await page(caller, "c", "b", "a", "b") == (every, None)
    assert await page(caller, "b", "0no", "x y", "") == (
        [
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
            ("0no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            ("b", 0, [0, 1, 2]),
            ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ],
        None,
    )


@pytest.mark.usefixtures("topics")
async def test_pages(caller: MetadataCaller) -> None:
    found, cursor = await page(caller, limit=2)
    assert (found, cursor) == ([("a", 0, [0, 1])], ("b", 0))
    found, cursor = await page(caller, limit=2, cursor=cursor)
    assert (found, cursor) == ([("b", 0, [0, 1])], ("b", 2))
    found, cursor = await page(caller, limit=2, cursor=cursor)
    assert (found, cursor) == ([("b", 0, [2]), ("c", 0, [0])], None)
    for limit in (0, -1, 1):
        assert await page(caller, limit=limit) == ([("a", 0, [0])], ("a", 1))
    assert await page(caller, "a", "zzz", limit=2) == ([("a", 0, [0, 1])], ("zzz", 0))


@pytest.mark.usefixtures("topics")
async def test_cursors(caller: MetadataCaller) -> None:
    assert await page(caller, "a", cursor=("a", 7)) == ([("a", 0, [])], None)
    assert await page(caller, cursor=("bb", 5)) == ([("c", 0, [0])], None), "a topic gone since"
    wrong: Any = [("b", ErrorCode.INVALID_REQUEST, []), ("a", ErrorCode.INVALID_REQUEST, [])]
    assert await page(caller, "b", "a", cursor=("a", -1)) == (wrong, None)
    assert await page(caller, "b", "a", cursor=("c", 0)) == (wrong, None)
    assert await page(caller, cursor=("a", -1)) == ([], None)
