"""DescribeProducers: what a partition remembers of its idempotent producers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.produce.api.describe_producers import MAX_REPEATED_PRODUCERS, DescribeProducers
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from tests.broker.fake_partitions import FakeCluster, header_of
from tests.broker.wire import Client, batch


async def describe(client: Client, *wanted: tuple[str, list[int]]) -> list[tuple[str, PartitionResponse]]:
    topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted]
    response = await client.call(DescribeProducersRequest(topics=topics), 0)
    return [(topic.name, each) for topic in response.topics for each in topic.partitions]


async def test_producers(broker: Broker, client: Client) -> None:
    await client.create("t", 2)
    before = broker.clock_ms()
    for producer_id, epoch, sequence in ((7, 0, 0), (5, 2, 0), (7, 0, 2)):
        data = batch(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        assert (await client.produce("t", data)).error_code == 0
    await client.produce("t", batch(b"plain"))
    (_, first), (_, second) = await describe(client, ("t", [0, 1]))
    assert [
        (each.producer_id, each.producer_epoch, each.last_sequence) for each in first.active_producers
    ] == [(5, 2, 1), (7, 0, 3)]
    for each in first.active_producers:
        assert before <= each.last_timestamp <= broker.clock_ms()
        assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
    assert (second.partition_index, second.error_code, second.active_producers) == (1, 0, [])


# --- without a broker -------------------------------------------------------------------------------------


def handle(
    cluster: FakeCluster, *wanted: tuple[str, list[int]], leads: bool = True
) -> list[tuple[str, int, int, list[int]]]:
    """Topic, partition, error and producer ids; producer 7 writes to partition 0, and to no other."""
    producers = SimpleNamespace(of=lambda number: [(7, ProducerEntry())] if number == 1 else [])
    cluster.group.is_leader = leads
    handler = DescribeProducers(cluster(), cast(Any, {1: SimpleNamespace(producers=producers)}))
    topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted]
    response = handler.handle(
        cast(ClientContext, None), header_of(handler.api_key, 0), DescribeProducersRequest(topics=topics)
    )
    return [
        (
            topic.name,
            each.partition_index,
            each.error_code,
            [one.producer_id for one in each.active_producers],
        )
        for topic in response.topics
        for each in topic.partitions
    ]


class ProducerEntry:
    producer_epoch, last_sequence, last_time_ms, coordinator_epoch, open_at = 1, 2, 3, 4, 5


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("t", 2)
    return cluster


def test_partitions_without_an_answer(cluster: FakeCluster) -> None:
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = [("t", [2, -1, 0, 0, 1]), ("no", [0]), ("a b", [0]), ("", [0]), ("t", [])]
    assert handle(cluster, *wanted) == [
        ("t", 2, unknown, []),
        ("t", -1, unknown, []),
        ("t", 0, 0, [7]),
        ("t", 0, 0, [7]),
        ("t", 1, 0, []),
        ("no", 0, unknown, []),
        ("a b", 0, invalid, []),
        ("", 0, invalid, []),
    ]
    assert handle(cluster) == []
    assert handle(cluster, ("t", [0]), leads=False) == [("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, [])]


def test_a_partition_is_described_again_only_so_often(cluster: FakeCluster) -> None:
    found = handle(cluster, ("t", [0] * 2_000), ("t", [1, 0, 1]), ("no", [0, 0]))
    assert [(name, index) for name, index, _, _ in found[-2:]] == [("t", 1), ("no", 0)]
    assert {len(producers) for _, _, _, producers in found[:-2]} == {1}
    assert len(found) == MAX_REPEATED_PRODUCERS // 2 + 3
