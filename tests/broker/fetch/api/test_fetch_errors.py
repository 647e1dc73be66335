"""Which errors end the wait of a Fetch, and what old clients are told."""

from __future__ import annotations

import asyncio
import time

import pytest

from lockstep.broker.fetch.partition_reads import MAX_UNKNOWN
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, fetch_request, records_of

NOWHERE = b"x" * 16
Outcome = tuple[int, list[bytes | None]]
Told = dict[tuple[str | bytes, int], Outcome]


def told(response: FetchResponse) -> Told:
    """Error and values of each partition."""
    return {
        (topic.topic or topic.topic_id, data.partition_index): (
            data.error_code,
            [record.value for record in records_of(data)],
        )
        for topic in response.responses
        for data in topic.partitions
    }


@pytest.mark.parametrize("version", [12, 13])
async def test_what_nobody_knows_does_not_end_the_wait_for_others(
    broker: Broker, client: Client, version: int
) -> None:
    topic_id = await client.create("t", 2)
    request = fetch_request({"nowhere": {0: 0, 1: 0}, "t": {7: 0, 0: 0, 1: 0}}, max_wait_ms=60_000)
    for topic in request.topics:
        topic.topic_id = topic_id if topic.topic == "t" else NOWHERE
    reader = await Client.connect(broker.port)
    reader.send(request, version)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1)
    await client.produce("t", batch(b"a"), 1)
    _, response = await asyncio.wait_for(reader.receive(request, version), 5)
    assert isinstance(response, FetchResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    of_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown
    t: str | bytes = topic_id if version >= 13 else "t"
    nowhere: str | bytes = NOWHERE if version >= 13 else "nowhere"
    expected: Told = {
        (nowhere, 0): (of_topic, []),
        (nowhere, 1): (of_topic, []),
        (t, 7): (unknown, []),
        (t, 0): (0, []),
        (t, 1): (0, [b"a"]),
    }
    assert told(response) == expected
    await reader.close()


async def test_where_nobody_knows_any_of_them_there_is_nothing_to_wait_for(client: Client) -> None:
    await client.create("t")
    request = fetch_request({"t": {1: 0, 2: 0}, "nowhere": {0: 0}}, max_wait_ms=60_000)
    response: FetchResponse = await client.call(request, 12)
    assert {error for error, _ in told(response).values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_error_of_one_log_ends_the_wait_for_others(client: Client) -> None:
    await client.create("t", 2)
    request = fetch_request({"t": {0: 0, 1: 5, 7: 0}}, max_wait_ms=60_000)
    response: FetchResponse = await client.call(request, 12)
    assert [error for error, _ in told(response).values()] == [
        0,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_topic_that_goes_ends_a_wait_beside_what_nobody_knew(broker: Broker, client: Client) -> None:
    await client.create("t")
    await client.create("gone")
    reader = await Client.connect(broker.port)
    request = fetch_request({"nowhere": {0: 0}, "t": {0: 0}, "gone": {0: 0}}, max_wait_ms=60_000)
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1)
    topic = broker.assembly.cluster.topic("gone")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    _, response = await asyncio.wait_for(reader.receive(request, 12), 5)
    assert isinstance(response, FetchResponse)
    unknown: Outcome = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    expected: Told = {("t", 0): (0, []), ("gone", 0): unknown, ("nowhere", 0): unknown}
    assert told(response) == expected
    await reader.close()


async def test_a_session_gets_errors_of_deleted_topics_when_its_wait_ends(
    broker: Broker, client: Client
) -> None:
    await client.create("t")
    await client.create("gone")
    opened = await client.call(fetch_request({"t": {0: 0}, "gone": {0: 0}}, session_epoch=0), 12)
    topic = broker.assembly.cluster.topic("gone")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    expected: Told = {("gone", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])}
    for epoch in (1, 2):
        started = time.perf_counter()
        request = FetchRequest(
            session_id=opened.session_id, session_epoch=epoch, max_wait_ms=150, min_bytes=1
        )
        response: FetchResponse = await client.call(request, 12)
        assert time.perf_counter() - started > 0.1
        assert told(response) == expected


async def test_what_nobody_knows_is_kept_once_while_a_request_waits(broker: Broker, client: Client) -> None:
    await client.create("t")
    request = fetch_request({"nowhere": {0: 0, 1: 0}, "t": {0: 0}}, max_wait_ms=60_000)
    request.topics[0].partitions *= MAX_UNKNOWN // 2
    reader = await Client.connect(broker.port)
    reader.send(request, 12)
    await until(lambda: broker.assembly.fetch_purgatory.count == 1)
    connections = broker.assembly.connections
    assert connections is not None and connections.in_flight_bytes == 0, "a long poll takes no room"
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    [waiting] = topic.partitions[0].delayed_fetches
    items = waiting.attempt.__self__._fetch_context.items
    assert [(item.topic, item.index) for item in items] == [("t", 0), ("nowhere", 0), ("nowhere", 1)]
    await client.produce("t", batch(b"a"))
    _, response = await asyncio.wait_for(reader.receive(request, 12), 5)
    assert isinstance(response, FetchResponse)
    assert told(response)["t", 0] == (0, [b"a"])
    await reader.close()


@pytest.mark.parametrize(("name", "count"), [("nowhere", MAX_UNKNOWN + 1), ("x" * 250, 1)])
async def test_more_than_may_be_kept_is_answered_at_once(client: Client, name: str, count: int) -> None:
    await client.create("t")
    wanted = {name: dict.fromkeys(range(count), 0), "t": {0: 0}}
    response = await asyncio.wait_for(client.call(fetch_request(wanted, max_wait_ms=60_000), 12), 5)
    errors = [error for error, _ in told(response).values()]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * count + [0]
