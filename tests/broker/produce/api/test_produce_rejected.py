"""A batch that is refused for whatever reason is remembered: no later one begins in its place.

The producer is idempotent and has several batches in flight, which the leader of a new partition meets while
it does not know the partition yet (KAFKA-15591, KAFKA-14312).
"""

from __future__ import annotations

import pytest

from lockstep.broker.metadata import lowest_sequences
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode as E
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.storage.types import NotLeader
from tests.broker.appends import idempotent
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch

UNKNOWN, OUT_OF_ORDER = E.UNKNOWN_TOPIC_OR_PARTITION, E.OUT_OF_ORDER_SEQUENCE_NUMBER


async def produce(
    client: Client, topic: str | bytes, sequence: int, index: int = 0, epoch: int = 0, records: bytes = b""
) -> int:
    """The error; a topic's id makes it a request of version 13."""
    data = PartitionProduceData(index=index, records=records or idempotent(sequence, epoch))
    named = TopicProduceData(partition_data=[data])
    if isinstance(topic, bytes):
        named.topic_id = topic
    else:
        named.name = topic
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])
    response: ProduceResponse = await client.call(request, 13 if isinstance(topic, bytes) else 12)
    error: int = response.responses[0].partition_responses[0].error_code
    return error


async def goes_on(client: Client, topic: str | bytes, first: int, index: int = 0) -> None:
    """The refused batch has to come first; those behind it follow."""
    for _ in range(2):
        assert await produce(client, topic, first + 1, index) == OUT_OF_ORDER
        assert await produce(client, topic, first + 4, index) == OUT_OF_ORDER
    assert [await produce(client, topic, first + each, index) for each in range(3)] == [0, 0, 0]


async def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    assert (await client.call(request, 6)).responses[0].error_code == 0


async def test_a_topic_that_is_not_known_yet(broker: Broker, client: Client) -> None:
    assert await produce(client, "t", 0) == UNKNOWN
    assert await produce(client, "t", 1) == UNKNOWN
    assert await produce(client, "other", 3) == UNKNOWN
    topic_id = await client.create("t", 2)
    assert await produce(client, "t", 5, index=1) == 0, "nothing was refused there: it may begin anywhere"
    assert await produce(client, topic_id, 1) == OUT_OF_ORDER, "however the topic is named"
    await goes_on(client, "t", 0)
    assert len(broker.assembly.cluster.first_sequences) == 1


async def test_another_epoch_begins_again(client: Client) -> None:
    assert await produce(client, "t", 0) == UNKNOWN
    await client.create("t")
    assert await produce(client, "t", 2, epoch=1) == 0


async def test_a_partition_that_is_added(client: Client) -> None:
    await client.create("t")
    assert await produce(client, "t", 7, index=1) == UNKNOWN
    more = CreatePartitionsTopic(name="t", count=2, assignments=None)
    answer = await client.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
    assert answer.results[0].error_code == 0
    await goes_on(client, "t", 7, index=1)


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_topic_that_is_created_again(client: Client, by_id: bool) -> None:
    """Its producers go on with their sequences."""
    before = await client.create("t")
    assert await produce(client, before if by_id else "t", 0) == 0
    await delete(client, "t")
    assert await produce(client, before if by_id else "t", 1) == (E.UNKNOWN_TOPIC_ID if by_id else UNKNOWN)
    after = await client.create("t")
    await goes_on(client, after if by_id else "t", 1)


async def test_a_former_id_after_the_topic_was_created_again(client: Client) -> None:
    before = await client.create("t")
    await delete(client, "t")
    after = await client.create("t")
    assert await produce(client, before, 3) == E.UNKNOWN_TOPIC_ID
    await goes_on(client, after, 3)


async def test_a_leader_that_is_none_for_a_moment(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    with monkeypatch.context() as moved:
        moved.setattr(type(broker.groups[1]), "is_leader", property(lambda group: False))
        assert await produce(client, "t", 0) == E.NOT_LEADER_OR_FOLLOWER
    await goes_on(client, "t", 0)
    with monkeypatch.context() as moved:

        def refuse(*_: object, **__: object) -> int:
            raise NotLeader("group 1 is not led here")

        moved.setattr(broker.groups[1], "append", refuse)
        moved.setattr(broker.groups[1].plain, "_max_uncommitted_bytes", -1)  # not by the fast path
        assert await produce(client, "t", 3) == E.NOT_LEADER_OR_FOLLOWER
    assert await produce(client, "t", 3) == 0, "a producer that is known is followed by its sequences"


async def test_a_batch_that_is_damaged_on_its_way(client: Client) -> None:
    await client.create("t")
    broken = bytearray(idempotent(0))
    broken[-1] ^= 1
    assert await produce(client, "t", 0, records=bytes(broken)) == E.CORRUPT_MESSAGE
    await goes_on(client, "t", 0)


async def test_a_batch_that_is_too_large(client: Client) -> None:
    """A client that splits it begins with the same sequence."""
    await client.create("t", max_message_bytes="200")
    large = batch(b"x" * 300, b"y", producer_id=9, producer_epoch=0, base_sequence=0)
    assert await produce(client, "t", 0, records=large) == E.MESSAGE_TOO_LARGE
    await goes_on(client, "t", 0)


async def test_nothing_is_remembered_of_what_has_no_sequence(broker: Broker, client: Client) -> None:
    for records in (idempotent(-1), b"short", bytes(70)):
        assert await produce(client, "t", 0, records=bytes(records)) == UNKNOWN
    assert await produce(client, "t", 0, index=-1) == UNKNOWN
    assert not broker.assembly.cluster.first_sequences


async def test_a_client_that_has_given_up_goes_on(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    assert await produce(client, "t", 0) == UNKNOWN
    await client.create("t")
    assert await produce(client, "t", 1) == OUT_OF_ORDER
    monkeypatch.setattr(lowest_sequences, "TTL_SECONDS", 0)
    assert await produce(client, "t", 1) == 0
    await client.close()
