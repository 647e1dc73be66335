"""Produce over a real broker: how much one request may carry."""

from __future__ import annotations

from broker.server import Broker
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire import Client, batch


def request(*topics: tuple[str, list[int]], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=index, records=batch(b"x")) for index in indexes],
            )
            for name, indexes in topics
        ],
    )


async def test_many_partitions_of_many_topics(client: Client) -> None:
    await client.create("one", 3)
    await client.create("two", 1)
    response = await client.call(request(("one", [2, 0, 1]), ("two", [0])), 9)
    answers = [
        (each.index, each.error_code) for topic in response.responses for each in topic.partition_responses
    ]
    assert answers == [(2, 0), (0, 0), (1, 0), (0, 0)]


async def test_a_request_with_more_batches_than_partitions_is_refused(client: Client, broker: Broker) -> None:
    await client.create("one", 2)
    await client.create("two", 1)
    response = await client.call(request(("one", [0, 1, 0]), ("two", [0]), ("two", [0])), 9)
    answers = [[each.error_code for each in topic.partition_responses] for topic in response.responses]
    refused = ErrorCode.INVALID_REQUEST
    assert answers == [[refused] * 3, [0], [refused]]
    ends = [each.log.next_offset for topic in broker.services.cluster.topics() for each in topic.partitions]
    assert ends == [0, 0, 1]
    client.send(request(("one", [0] * 3), acks=0), 9)
    assert await client.is_closed()
