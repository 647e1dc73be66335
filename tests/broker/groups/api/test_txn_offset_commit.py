"""TxnOffsetCommit and AddOffsetsToTxn, where the coordinators' answers and the log's come at bad moments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.broker.transactions.verification_client import Codes, TopicPartition, VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import Backlogged, NotLeader, StorageFull
from tests.broker.groups.api.offsets import TopicIds, committed, end, ready
from tests.broker.wire import Client

E = ErrorCode
ID = "tx"
Identity = tuple[int, int]


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    return await ready(client)


@pytest.fixture
async def identity(client: Client, ids: TopicIds) -> Identity:
    await client.call(FindCoordinatorRequest(key=ID, key_type=1), 1)
    answer = await client.call(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def commit_of(identity: Identity, *offsets: int, group_id: str = "g", **more: Any) -> TxnOffsetCommitRequest:
    """Offsets of the first partitions of `t`."""
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in enumerate(offsets)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=group_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
        **more,
    )


async def add(client: Client, identity: Identity, version: int = 3) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=identity[0], producer_epoch=identity[1], group_id="g"
    )
    error: int = (await client.call(request, version)).error_code
    return error


async def errors(client: Client, request: TxnOffsetCommitRequest, version: int = 4) -> list[int]:
    answer = await client.call(request, version)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def test_the_first_commit_is_verified_and_the_next_is_not(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await errors(client, commit_of(identity, 5)) == [E.TRANSACTION_ABORTABLE]
    assert await add(client, identity) == 0
    assert await errors(client, commit_of(identity, 5)) == [0]
    monkeypatch.setattr(broker.assembly.verification, "verify", None)
    assert await errors(client, commit_of(identity, 6, 7)) == [0, 0]
    assert await committed(client) == {}
    await end(broker, identity[0])
    assert await committed(client) == {("t", 0): 6, ("t", 1): 7}


async def test_coordinators_that_are_held_up_are_waited_for(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's and the transaction's, which have lost their leases, and lead."""
    with monkeypatch.context() as held_up:
        held_up.setattr(LogGroup, "has_lease", False)
        assert await errors(client, commit_of(identity, 5)) == [E.TRANSACTION_ABORTABLE]
        assert await add(client, identity) == 0
        assert await errors(client, commit_of(identity, 5)) == [0]
        assert await errors(client, commit_of(identity, 6)) == [0]
    await end(broker, identity[0])
    assert await committed(client) == {("t", 0): 6}


Ask = Callable[[VerificationRequest, Sequence[TopicPartition]], Awaitable[Codes]]


def answering(error: ErrorCode, then: Callable[[], object] = lambda: None) -> Ask:
    async def verify(request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        assert (request.transactional_id, [name for name, _ in places]) == (ID, ["__consumer_offsets"])
        await asyncio.sleep(0)
        then()
        return dict.fromkeys(places, error)

    return verify


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (E.PRODUCER_FENCED, 5, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.NETWORK_EXCEPTION, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_NOT_AVAILABLE, 5, E.COORDINATOR_NOT_AVAILABLE),
        (E.CONCURRENT_TRANSACTIONS, 5, E.CONCURRENT_TRANSACTIONS),
        (E.CONCURRENT_TRANSACTIONS, 4, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.CONCURRENT_TRANSACTIONS, 3, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.CONCURRENT_TRANSACTIONS, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, 0, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_the_coordinators_errors_are_reported_as_in_kafka(
    broker: Broker,
    client: Client,
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
    said: ErrorCode,
    version: int,
    told: ErrorCode,
) -> None:
    monkeypatch.setattr(broker.assembly.verification, "verify", answering(said))
    assert await errors(client, commit_of(identity, 5, 6), version) == [told, told]
    assert "g" not in broker.assembly.consumer_groups.store("g").state


async def test_a_transaction_that_ends_during_its_verification(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would ever end what is written after the marker."""
    store = broker.assembly.consumer_groups.store("g")
    partition = store.partition("g")
    assert partition is not None
    appender = broker.assembly.appenders[store.group.group_id]
    marker = TxnMarkerEntry(*identity, 0, False, 0)
    ending = answering(E.NONE, lambda: appender.end_transactions([partition], marker))
    monkeypatch.setattr(broker.assembly.verification, "verify", ending)
    assert await errors(client, commit_of(identity, 5)) == [E.INVALID_TXN_STATE]
    assert not store.state.pending("g")


async def test_a_marker_of_the_transaction_before_comes_while_the_next_one_is_added(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2: EndTxn is answered when the end is decided, its marker may come later than these offsets."""
    store = broker.assembly.consumer_groups.store("g")
    partition = store.partition("g")
    assert partition is not None
    appender = broker.assembly.appenders[store.group.group_id]
    marker = TxnMarkerEntry(*identity, 0, True, 2)
    asked: list[bool] = []

    async def verify(request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        asked.append(request.add)
        if len(asked) == 1:
            appender.end_transactions([partition], marker)
        return dict.fromkeys(places, E.NONE)

    monkeypatch.setattr(broker.assembly.verification, "verify", verify)
    assert await errors(client, commit_of(identity, 5), 5) == [0]
    assert asked == [True, True]
    assert store.state.pending("g")


async def test_the_leadership_is_lost_during_the_verification(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose() -> None:
        monkeypatch.setattr(LogGroup, "is_leader", False)

    monkeypatch.setattr(broker.assembly.verification, "verify", answering(E.NONE, lose))
    assert await errors(client, commit_of(identity, 5)) == [E.NOT_COORDINATOR]
    monkeypatch.undo()
    assert "g" not in broker.assembly.consumer_groups.store("g").state


async def test_a_topic_is_deleted_during_the_verification(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("kept")
    gone = broker.assembly.cluster.topic("t")
    assert gone is not None

    async def verify(request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        await broker.assembly.topics.delete(gone)
        return dict.fromkeys(places, E.NONE)

    monkeypatch.setattr(broker.assembly.verification, "verify", verify)
    request = commit_of(identity, 5)
    request.topics += [TxnOffsetCommitRequestTopic(name="kept", partitions=request.topics[0].partitions)]
    assert await errors(client, request) == [E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert broker.assembly.consumer_groups.store("g").state.pending("g") == {("kept", 0)}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (StorageFull("full"), E.COORDINATOR_NOT_AVAILABLE),
        (Backlogged("much"), E.COORDINATOR_NOT_AVAILABLE),
        (NotLeader("moved"), E.NOT_COORDINATOR),
    ],
)
async def test_the_log_refuses(
    broker: Broker,
    client: Client,
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    told: ErrorCode,
) -> None:
    def append(*_: object, **__: object) -> int:
        raise failure

    monkeypatch.setattr(broker.assembly.verification, "verify", answering(E.NONE))
    monkeypatch.setattr(LogGroup, "append", append)
    assert await errors(client, commit_of(identity, 5, 6)) == [told, told]
    monkeypatch.undo()
    assert not broker.assembly.consumer_groups.store("g").is_under_way("g")


async def test_the_group_is_coordinated_elsewhere(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(group_id: str) -> None:
        raise RequestError(E.COORDINATOR_LOAD_IN_PROGRESS, "not yet")

    monkeypatch.setattr(broker.assembly.consumer_groups, "of", of)
    assert await errors(client, commit_of(identity, 5), 2) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert await errors(client, commit_of(identity, 5), 1) == [E.COORDINATOR_NOT_AVAILABLE]


async def test_a_fenced_producer_by_the_version_of_its_request(
    broker: Broker, client: Client, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = identity[0], identity[1] + 1
    for version in range(5):
        told = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        assert await add(client, fenced, version) == told
    assert await add(client, identity, 4) == 0
    assert await errors(client, commit_of(identity, 5)) == [0]
    assert await errors(client, commit_of((identity[0], -1), 5)) == [E.INVALID_PRODUCER_EPOCH]
