"""DescribeProducers: what a partition remembers of its idempotent producers."""

from __future__ import annotations

from lockstep.broker.produce.api.describe_producers import MAX_REPEATED_PRODUCERS
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
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


async def test_refused(client: Client) -> None:
    await client.create("t")
    found = await describe(client, ("t", [1, -1, 0, 0]), ("no", [0]), ("a b", [0]), ("", [0]), ("t", []))
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [(name, each.partition_index, each.error_code) for name, each in found] == [
        ("t", 1, unknown),
        ("t", -1, unknown),
        ("t", 0, 0),
        ("t", 0, 0),
        ("no", 0, unknown),
        ("a b", 0, invalid),
        ("", 0, invalid),
    ]
    assert await describe(client) == []


async def test_a_partition_is_described_again_only_so_often(client: Client) -> None:
    await client.create("t", 2)
    await client.produce("t", batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    found = await describe(client, ("t", [0] * 2_000), ("t", [1, 0, 1]), ("no", [0, 0]))
    assert [(name, each.partition_index) for name, each in found[-2:]] == [("t", 1), ("no", 0)]
    assert {len(each.active_producers) for _, each in found[:-2]} == {1}
    assert len(found) == MAX_REPEATED_PRODUCERS // 2 + 3
