"""Faults of Kafka's transaction coordinator and of partitions that take part in transactions."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from lockstep.protocol.messages.describe_producers import DescribeProducersRequest
from lockstep.protocol.messages.describe_producers import TopicRequest as DescribedTopic
from lockstep.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lockstep.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.groups.api.offsets import ready
from tests.broker.upstream_faults.transactional import (
    END_VERSION,
    ID,
    PRODUCE_VERSION,
    ended,
    ending,
    initialised,
    marked,
    marker,
    sent,
    transactional,
)
from tests.broker.wire import Client, records_of

E = ErrorCode


async def test_an_aborted_producer_gets_its_epoch(client: Client) -> None:
    """KAFKA-19690, KAFKA-18042: INVALID_PRODUCER_EPOCH, from which clients recover; not INVALID_TXN_STATE."""
    await client.create("t")
    first = await initialised(client)
    assert await sent(client, first, b"a") == 0
    second = await initialised(client)
    assert second[1] > first[1]
    assert await sent(client, first, b"b", 1) == E.INVALID_PRODUCER_EPOCH
    assert await sent(client, first, b"b", 0) == E.INVALID_PRODUCER_EPOCH


async def test_an_empty_abort_right_behind_a_commit(client: Client) -> None:
    """KAFKA-18464: the abort comes while the commit is not through, and must not fence its own producer."""
    await client.create("t")
    first = await initialised(client)
    assert await sent(client, first, b"a") == 0
    client.send(ending(first, commit=True), END_VERSION)
    client.send(ending((first[0], first[1] + 1), commit=False), END_VERSION)
    _, committed = await client.receive(ending(first, commit=True), END_VERSION)
    _, aborted = await client.receive(ending(first, commit=False), END_VERSION)
    assert committed.error_code == 0  # type: ignore[attr-defined]
    assert (aborted.error_code, aborted.producer_epoch) == (0, first[1] + 2)  # type: ignore[attr-defined]
    assert await sent(client, (first[0], first[1] + 2), b"b") == 0


async def test_a_batch_right_behind_a_commit_is_of_the_next_transaction(client: Client) -> None:
    """KAFKA-18575, KAFKA-18654, KAFKA-18662: it waits for the end of the one before."""
    await client.create("t")
    identity = await initialised(client)
    for place in range(5):
        assert await sent(client, identity, b"%d" % place) == 0
        client.send(ending(identity, commit=True), END_VERSION)
        _, answer = await client.receive(ending(identity, commit=True), END_VERSION)
        assert answer.error_code == 0  # type: ignore[attr-defined]
        identity = answer.producer_id, answer.producer_epoch  # type: ignore[attr-defined]
    assert await sent(client, identity, b"aborted") == 0
    assert (await ended(client, identity, commit=False))[0] == 0
    read = await client.fetch("t", 0, isolation_level=1)
    assert [each.value for each in records_of(read) if len(each.value or b"") == 1] == [
        b"0", b"1", b"2", b"3", b"4",
    ]  # fmt: skip
    assert [each.producer_id for each in read.aborted_transactions or []] == [identity[0]]


async def test_a_marker_that_is_sent_again_is_no_error_and_no_second_marker(client: Client) -> None:
    """KAFKA-19999: a strict check of the epoch took it for a stale one, and the transaction never ended."""
    await client.create("t")
    identity = await initialised(client)
    assert await sent(client, identity, b"a") == 0
    raised = identity[0], identity[1] + 1
    assert await marked(client, marker(raised, ("t", 0))) == [[0]]
    end = (await client.fetch("t", 0)).high_watermark
    assert await marked(client, marker(raised, ("t", 0))) == [[0]]
    assert (await client.fetch("t", 0)).high_watermark == end == 2


async def test_a_marker_of_the_transaction_before_ends_nothing(client: Client) -> None:
    """KAFKA-19446: since version 2 a marker's epoch is above that of the batches that it ends."""
    await client.create("t")
    identity = await initialised(client)
    assert await sent(client, identity, b"a") == 0
    assert await marked(client, marker(identity, ("t", 0))) == [[E.INVALID_PRODUCER_EPOCH]]
    assert (await client.fetch("t", 0)).last_stable_offset == 0
    assert (await ended(client, identity))[0] == 0


async def test_each_marker_of_a_request_has_an_answer(client: Client) -> None:
    """KAFKA-17877: one that ends early must not count for another, whose answer would be missing."""
    await client.create("t", 2)
    identity = await initialised(client)
    assert await sent(client, identity, b"a") == 0
    raised = identity[0], identity[1] + 1
    unknown = marker((99_999, 0), ("nowhere", 0), ("t", 7))
    answers = await marked(client, unknown, marker(raised, ("t", 0), ("t", 1)), unknown)
    nobody = E.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == [[nobody, nobody], [0, 0], [nobody, nobody]]


async def test_a_delayed_commit_does_not_end_the_next_transaction(client: Client) -> None:
    """KAFKA-17754: the commit of the transaction before arrives late, in the midst of the next one."""
    await client.create("t")
    first = await initialised(client)
    assert await sent(client, first, b"a") == 0
    error, second = await ended(client, first)
    assert error == 0
    assert await sent(client, second, b"b") == 0
    assert (await ended(client, first))[0] == E.PRODUCER_FENCED
    assert (await client.fetch("t", 0)).last_stable_offset == 2
    assert (await ended(client, second))[0] == 0


@pytest.mark.parametrize("version", [0, 2])
async def test_offsets_of_a_member_less_commit_within_a_transaction(client: Client, version: int) -> None:
    """KAFKA-18060: TxnOffsetCommit below version 3 has no member id; it is no unknown member's.

    KAFKA-17507: once the end of the transaction is answered, the offset is there for readers."""
    await ready(client)
    identity = await initialised(client)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    adding = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=identity[0], producer_epoch=identity[1], group_id="g"
    )
    assert (await client.call(adding, 3)).error_code == 0
    answer = await client.call(request, version)
    assert answer.topics[0].partitions[0].error_code == 0
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
        ],
        require_stable=True,
    )
    client.send(ending(identity, commit=True), END_VERSION)
    client.send(asked, 8)
    await client.receive(ending(identity, commit=True), END_VERSION)
    _, told = await client.receive(asked, 8)
    (found,) = told.groups[0].topics[0].partitions  # type: ignore[attr-defined]
    assert (found.error_code, found.committed_offset) == (0, 7)


async def test_a_transaction_that_is_aborted_by_a_new_producer_raises_the_epoch_once_each(
    client: Client,
) -> None:
    """KAFKA-19367: the abort raises the epoch, and the new producer; nothing else does."""
    await client.create("t")
    first = await initialised(client)
    assert await sent(client, first, b"a") == 0
    assert await initialised(client) == (first[0], first[1] + 2)


async def test_a_producer_that_is_gone_is_not_open_in_any_partition(client: Client) -> None:
    """KAFKA-18137, KAFKA-19690: after an abort by the coordinator no partition has the transaction open."""
    await client.create("t", 3)
    first = await initialised(client)
    for index in range(3):
        request = transactional(first, b"a", partition=index)
        answer = await client.call(request, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
    await initialised(client)
    asked = DescribeProducersRequest(topics=[DescribedTopic(name="t", partition_indexes=[0, 1, 2])])
    told = await client.call(asked, 0)
    starts = [
        producer.current_txn_start_offset
        for partition in told.topics[0].partitions
        for producer in partition.active_producers
    ]
    assert starts == [-1, -1, -1]
