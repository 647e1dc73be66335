"""CreatePartitions: what grows, what is refused, and who sees the new partitions."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from lockstep.protocol.messages.fetch import FetchResponse
from lockstep.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch, fetch_request, records_of


def wanted(name: str, count: int, *assignments: list[int], manual: bool = False) -> CreatePartitionsTopic:
    chosen = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    return CreatePartitionsTopic(
        name=name, count=count, assignments=chosen if assignments or manual else None
    )


async def grow(
    client: Client, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=5000, validate_only=validate_only)
    results: list[CreatePartitionsTopicResult] = (await client.call(request, version)).results
    return results


@pytest.mark.parametrize("version", range(4))
async def test_in_every_version(broker: Broker, client: Client, version: int) -> None:
    await client.create("t")
    (result,) = await grow(client, wanted("t", 3), version=version)
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    for index in range(3):
        assert (await client.produce("t", batch(b"x"), index)).error_code == 0
    assert (await client.produce("t", batch(b"x"), 3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.assembly.cluster.partition_count == 3


async def test_its_effect_on_locks_is_reported(client: Client) -> None:
    await client.create("locked", lockstep_locks="true")
    (result,) = await grow(client, wanted("locked", 2))
    assert result.error_code == 0 and "two may hold the same lock" in (result.error_message or "")


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        (wanted("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            wanted("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            wanted("t", -(2**31)),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); -2147483648 would not be an increase.",
        ),
        (wanted("no", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "host"),
        (wanted("", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "host"),
        (wanted("t", 3, manual=True), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 0 assignment(s)"),
        (wanted("t", 3, [1], [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 2 assignment(s)"),
        (wanted("t", 3, [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such"),
        (wanted("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        (wanted("t", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once"),
        (wanted("t", 3, [1, 7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such"),
        (wanted("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "lockstep.max.partitions"),
    ],
)
async def test_refused(
    broker: Broker, client: Client, topic: CreatePartitionsTopic, error: ErrorCode, words: str
) -> None:
    await client.create("t", 2)
    for validate_only in (True, False):
        (result,) = await grow(client, topic, validate_only=validate_only)
        assert result.error_code == error
        assert words in (result.error_message or "")
    assert broker.assembly.cluster.partition_count == 2


async def test_one_refusal_leaves_the_others(broker: Broker, client: Client) -> None:
    await client.create("a")
    await client.create("b")
    results = await grow(
        client, wanted("b", 2, [1]), wanted("no", 2), wanted("a", 2), wanted("a", 3), wanted("b/d", 1)
    )
    assert [(each.name, each.error_code) for each in results] == [
        ("b", 0),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b/d", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [len(topic.partitions) for topic in broker.assembly.cluster.topics()] == [1, 2]
    assert await grow(client) == []


async def test_limits(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_max_partitions_per_request="5", lockstep_max_partitions="10")
    client = await Client.connect(broker.port)
    for name in "ab":
        await client.create(name)
    results = await grow(client, wanted("a", 5), wanted("b", 5))
    assert [each.error_code for each in results] == [0, ErrorCode.POLICY_VIOLATION]
    (beyond,) = await grow(client, wanted("b", 6))
    assert beyond.error_code == ErrorCode.POLICY_VIOLATION
    (fits,) = await grow(client, wanted("b", 5))
    assert fits.error_code == 0


async def test_two_at_once_never_shrink_it(broker: Broker, client: Client) -> None:
    await client.create("t")
    other = await Client.connect(broker.port)
    (first,), (second,) = await asyncio.gather(grow(client, wanted("t", 4)), grow(other, wanted("t", 3)))
    codes = {first.error_code, second.error_code}
    assert codes <= {0, ErrorCode.INVALID_PARTITIONS}
    assert first.error_code == 0
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    assert [each.index for each in topic.partitions] == [0, 1, 2, 3]
    assert len({each.log.local_id for each in topic.partitions}) == 4
    await other.close()


async def test_metadata_and_waiting_fetches_see_them(broker: Broker, client: Client) -> None:
    topic_id = await client.create("t")
    every = MetadataRequest(topics=None)
    (before,) = (await client.call(every, 12)).topics
    assert len(before.partitions) == 1
    waiting = await Client.connect(broker.port)
    # A session that names a partition before it is there is told so, and finds it later.
    request = fetch_request({"t": {0: 0, 1: 0}}, session_epoch=0)
    opened: FetchResponse = await waiting.call(request, 12)
    errors = [each.error_code for each in opened.responses[0].partitions]
    assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (result,) = await grow(client, wanted("t", 2))
    assert result.error_code == 0
    (after,) = (await client.call(every, 12)).topics
    assert (after.topic_id, [each.partition_index for each in after.partitions]) == (topic_id, [0, 1])
    again = fetch_request({}, session_id=opened.session_id, session_epoch=1, max_wait_ms=10_000)
    waiting.send(again, 12)
    await asyncio.sleep(0.05)
    await client.produce("t", batch(b"new"), 1)
    told = (await asyncio.wait_for(waiting.receive(again, 12), 5))[1]
    assert isinstance(told, FetchResponse)
    parts = {each.partition_index: each for each in told.responses[0].partitions}
    if not parts[1].records:  # the first answer only took the error back
        following = fetch_request({}, session_id=opened.session_id, session_epoch=2, max_wait_ms=10_000)
        parts = {0: (await waiting.call(following, 12)).responses[0].partitions[0]}
    assert [record.value for record in records_of(list(parts.values())[-1])] == [b"new"]
    await waiting.close()
