"""Atomic appends over the wire: all partitions of one log group or none, as one entry of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.broker.produce.api import atomic_produce
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode as E
from lockstep.protocol.lock_words import ATOMIC_TAG
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.conftest import StartBroker
from tests.broker.locks.asking import asks, batch, lock
from tests.broker.wire import Client

Batches = Mapping[tuple[str, int], bytes]
Answers = dict[tuple[str, int], PartitionProduceResponse]


def request_of(batches: Batches, **fields: Any) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, index), records in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
    wanted = [TopicProduceData(name=name, partition_data=data) for name, data in topics.items()]
    request = ProduceRequest(**{"acks": -1, "timeout_ms": 5_000, "topic_data": wanted, **fields})
    request.unknown_tags = {ATOMIC_TAG: b""}
    return request


async def together(client: Client, batches: Batches, **fields: Any) -> Answers:
    response = await client.call(request_of(batches, **fields), 9)
    return {
        (topic.name, each.index): each for topic in response.responses for each in topic.partition_responses
    }


def codes(answers: Answers) -> set[int]:
    return {each.error_code for each in answers.values()}


@pytest.fixture
async def topics(client: Client) -> Client:
    """Two topics in one log group: "t" keeps locks, "plain" does not."""
    await client.create("t", 3, lockstep_locks="true", lockstep_group="1")
    await client.create("plain", 2, lockstep_group="1")
    return client


def frames(broker: Broker) -> int:
    return broker.assembly.appenders[1].group.log.last_index


async def test_one_entry_over_many_partitions(topics: Client, broker: Broker) -> None:
    assert (await topics.produce("plain", batch([]), 1)).error_code == 0
    before = frames(broker)
    answers = await together(
        topics,
        {("t", 0): batch([], []), ("plain", 1): batch([]), ("t", 2): batch(asks(-1, write_lock="a"))},
    )
    assert {place: each.base_offset for place, each in answers.items()} == {
        ("t", 0): 0,
        ("plain", 1): 1,
        ("t", 2): 0,
    }
    assert codes(answers) == {0} and frames(broker) == before + 1
    assert await lock(topics, -1, partition=2, write_lock="a") == -E.POLICY_VIOLATION


async def test_one_refusal_is_everybodys(topics: Client) -> None:
    assert await lock(topics, -1, partition=1, write_lock="a") == 0
    answers = await together(
        topics,
        {
            ("t", 0): batch(asks(-1, write_lock="b")),
            ("plain", 0): batch([]),
            ("t", 1): batch(asks(-1, write_lock="a")),
        },
    )
    assert codes(answers) == {E.POLICY_VIOLATION}
    texts = {each.error_message for each in answers.values()}
    assert len(texts) == 1 and "topic-partition=t-1 " in str(texts)
    assert {each.base_offset for each in answers.values()} == {-1}
    assert await lock(topics, -1, write_lock="b") == 0, "neither batch nor lock is there"
    assert (await topics.produce("plain", batch([]))).base_offset == 0


async def test_locks_are_checked_against_what_was_before(topics: Client) -> None:
    """What one of its batches raises is no conflict for another."""
    crossed = [*asks(-1, write_lock="y"), ("lockstep-read-lock@t-0", b"x"), ("lockstep-hwm@t-0", b"-1")]
    answers = await together(topics, {("t", 0): batch(asks(-1, write_lock="x")), ("t", 1): batch(crossed)})
    assert codes(answers) == {0}
    answers = await together(topics, {("t", 1): batch([*crossed[2:]])})
    assert codes(answers) == {E.POLICY_VIOLATION}


async def test_duplicates_are_all_of_it_or_refused(topics: Client) -> None:
    def one(sequence: int) -> bytes:
        return batch([], producer_id=7, producer_epoch=0, base_sequence=sequence)

    first = {("t", 0): one(0), ("plain", 0): one(0)}
    for _ in range(2):
        answers = await together(topics, first)
        assert [(each.error_code, each.base_offset) for each in answers.values()] == [(0, 0), (0, 0)]
    mixed = {("t", 0): one(0), ("plain", 0): one(1)}
    answers = await together(topics, mixed)
    assert codes(answers) == {E.INVALID_RECORD}
    assert all("t-0: " in str(each.error_message) for each in answers.values())
    answers = await together(topics, {("t", 0): one(1), ("plain", 0): one(2)})
    assert codes(answers) == {E.OUT_OF_ORDER_SEQUENCE_NUMBER}
    answers = await together(topics, {("t", 0): one(1), ("plain", 0): one(1)})
    assert codes(answers) == {0}, "a refusal took no sequence anywhere"


async def test_what_cannot_be_one(client: Client) -> None:
    await client.create("a", 2, lockstep_group="1")
    good = batch([])
    for batches, fields, error in (
        ({("a", 0): good, ("a", 5): good}, {}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({("a", 0): good, ("nowhere", 0): good}, {}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({("a", 0): good, ("a", 1): b""}, {}, E.INVALID_RECORD),
        ({("a", 0): good, ("a", 1): good[:-1] + b"\7"}, {}, E.CORRUPT_MESSAGE),
        ({("a", 0): good, ("a", 1): good}, {"transactional_id": "x"}, E.INVALID_REQUEST),
        (
            {("a", 0): batch([], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)},
            {},
            None,
        ),
    ):
        answers = await together(client, batches, **fields)
        assert len(answers) == len(batches) and 0 not in codes(answers)
        assert error is None or codes(answers) == {error}
    twice = request_of({("a", 0): good})
    twice.topic_data[0].partition_data *= 2
    response = await client.call(twice, 9)
    assert [e.error_code for e in response.responses[0].partition_responses] == [E.INVALID_REQUEST] * 2
    filled = request_of({("a", 0): good})
    filled.unknown_tags = {ATOMIC_TAG: b"1"}
    response = await client.call(filled, 9)
    assert response.responses[0].partition_responses[0].error_code == E.INVALID_REQUEST
    assert (await client.produce("a", good)).base_offset == 0
    assert (await client.produce("a", good, 1)).base_offset == 0
    client.send(request_of({("a", 0): good}, acks=0), 9)
    assert await client.is_closed()


async def test_partitions_of_several_log_groups(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2")
    client = await Client.connect(broker.port)
    await client.create("a", lockstep_group="1")
    await client.create("b", lockstep_group="2")
    answers = await together(client, {("a", 0): batch([]), ("b", 0): batch([])})
    assert codes(answers) == {E.INVALID_RECORD}
    assert "a-0 in 1, b-0 in 2" in str(answers["a", 0].error_message)
    await client.close()


async def test_more_than_a_frame_takes(topics: Client) -> None:
    large = batch([], value=b"x" * 1_000_000)
    await topics.create("wide", 20, lockstep_group="1")
    answers = await together(topics, {("wide", index): large for index in range(20)})
    assert codes(answers) == {E.MESSAGE_TOO_LARGE}
    assert codes(await together(topics, {("wide", index): large for index in range(3)})) <= {0, 10}


async def test_both_halves_after_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t", 2, lockstep_locks="true")
    answers = await together(
        client,
        {("t", 0): batch(asks(-1, write_lock="a")), ("t", 1): batch(asks(-1, write_lock="b"))},
    )
    assert codes(answers) == {0}
    await client.close()
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    for index, name in enumerate("ab"):
        assert await lock(client, -1, partition=index, write_lock=name) == -E.POLICY_VIOLATION
        assert await lock(client, 0, partition=index, write_lock=name) == 1
    await client.close()


async def test_checking_takes_no_longer_than_it_may(topics: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one turn of the loop, whatever batches have to be opened."""
    both = {("t", 0): batch([]), ("t", 1): batch([])}
    monkeypatch.setattr(atomic_produce, "MAX_SECONDS", 0.0)
    answers = await together(topics, both)
    assert codes(answers) == {E.RECORD_LIST_TOO_LARGE}
    assert codes(await together(topics, {("t", 0): batch([])})) == {0}, "one may take as long as it takes"
    monkeypatch.undo()
    assert [each.base_offset for each in (await together(topics, both)).values()] == [1, 0]
