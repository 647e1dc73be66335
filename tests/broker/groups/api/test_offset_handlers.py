"""The handlers of offsets without a broker: OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, cast

import pytest

from lockstep.broker.groups.api.offset_commit import OffsetCommit
from lockstep.broker.groups.api.offset_delete import OffsetDelete
from lockstep.broker.groups.api.offset_fetch import OffsetFetch
from lockstep.broker.groups.api.txn_offset_commit import TxnOffsetCommit
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.requests.request_context import await_response
from lockstep.broker.transactions.verification_client import Codes, Verification, VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
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
from tests.broker.fakes import FakeMetadata, client, header
from tests.broker.groups.api import offsets
from tests.broker.groups.api.fakes import FakeGroups

E = ErrorCode
TopicPartition = tuple[str, int]


class World:
    """A topic `t` of two partitions, and the handlers."""

    def __init__(self) -> None:
        self.groups = FakeGroups()
        self.metadata = FakeMetadata()
        self.ids = {"t": self.metadata.add_topic("t", (1, 1)).topic_id}
        self.questions: list[tuple[VerificationRequest, list[TopicPartition]]] = []
        self.verdict = E.NONE

    async def verify(self, request: VerificationRequest, partitions: Sequence[TopicPartition]) -> Codes:
        """The transaction's coordinator verifies."""
        self.questions.append((request, list(partitions)))
        return dict.fromkeys(partitions, self.verdict)

    def commit(self, version: int, found: dict[TopicPartition, int], **fields: Any) -> Any:
        request = offsets.request(version, found, self.ids)
        for name, value in fields.items():
            setattr(request, name, value)
        handler = OffsetCommit(self.groups(), self.metadata.cluster)
        return handler.handle(client(), header(version), request)

    def committed(self, version: int, found: dict[TopicPartition, int], **fields: Any) -> list[int]:
        """The errors of a commit's partitions."""
        return self.errors(self.commit(version, found, **fields))

    def errors(self, answer: Any) -> list[int]:
        response = self.groups.response(answer)
        return [each.error_code for topic in response.topics for each in topic.partitions]

    def fetch(self, version: int, *groups: OffsetFetchRequestGroup, **fields: Any) -> Any:
        request = OffsetFetchRequest(groups=list(groups), **fields)
        handler = OffsetFetch(self.groups(), self.metadata.cluster, self.groups.time_slicer)
        return handler.handle(client(), header(version), request)

    def txn_commit(self, version: int, *names: str, group_id: str = "g") -> Any:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)],
            )
            for name in names
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="x", group_id=group_id, producer_id=7, producer_epoch=1, topics=topics
        )
        verification = cast(Verification, self)
        handler = TxnOffsetCommit(self.groups(), self.metadata.cluster, verification)
        return handler.handle(client(), header(version), request)


@pytest.fixture
def world() -> World:
    return World()


def all_of(group_id: str = "g", *, partitions: list[int] | None = None) -> OffsetFetchRequestGroup:
    topics = None
    if partitions is not None:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=partitions)]
    return OffsetFetchRequestGroup(group_id=group_id, topics=topics)


def found(response: Any) -> dict[TopicPartition, int]:
    (group,) = response.groups
    assert group.error_code == E.NONE
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    }


# --- OffsetCommit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 9, 10])
def test_offsets_are_stored_and_read(world: World, version: int) -> None:
    assert world.committed(version, {("t", 0): 5, ("t", 1): 6}) == [E.NONE, E.NONE]
    assert found(world.fetch(8, all_of())) == {("t", 0): 5, ("t", 1): 6}


def test_an_unknown_partition_has_an_error_of_its_own(world: World) -> None:
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    for version in (2, 9):
        offsets = {("t", 0): 5, ("t", 2): 6, ("t", -1): 6, ("u", 0): 7}
        assert world.committed(version, offsets) == [E.NONE, unknown, unknown, unknown]
    world.ids["u"] = bytes(16)
    assert world.committed(10, {("u", 0): 7}) == [E.UNKNOWN_TOPIC_ID]
    assert found(world.fetch(8, all_of())) == {("t", 0): 5}


def test_the_groups_error_is_every_partitions(world: World) -> None:
    world.groups.error = E.NOT_COORDINATOR
    assert world.committed(9, {("t", 0): 5, ("u", 0): 6}) == [E.NOT_COORDINATOR, E.UNKNOWN_TOPIC_OR_PARTITION]
    world.groups.error = E.NONE
    for version, error in ((8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)):
        codes = world.committed(version, {("t", 0): 5}, member_id="m", generation_id_or_member_epoch=3)
        assert codes == [error]
    assert not world.groups.world.store.written


def test_the_response_to_a_commit_waits(world: World) -> None:
    world.groups.world.store.at_once = False
    answer = world.commit(9, {("t", 0): 5, ("t", 4): 6})
    assert not answer.done
    world.groups.world.store.commit(E.NOT_COORDINATOR)
    assert world.errors(answer) == [E.NOT_COORDINATOR, E.UNKNOWN_TOPIC_OR_PARTITION]


# --- OffsetFetch --------------------------------------------------------------------------------------------


def test_a_partition_without_an_offset(world: World) -> None:
    world.committed(9, {("t", 0): 5})
    assert found(world.fetch(8, all_of(partitions=[0, 1, 9]))) == {("t", 0): 5, ("t", 1): -1, ("t", 9): -1}
    assert found(world.fetch(8, all_of("nobody"))) == {}


def test_a_groups_error_is_its_own(world: World) -> None:
    world.groups.error = E.NOT_COORDINATOR
    response = world.fetch(8, all_of("a"), all_of("b", partitions=[0]))
    assert [(each.group_id, each.error_code, each.topics) for each in response.groups] == [
        ("a", E.NOT_COORDINATOR, []),
        ("b", E.NOT_COORDINATOR, []),
    ]


def test_all_offsets_of_a_group_are_read_once(world: World) -> None:
    response = world.fetch(8, all_of(), all_of())
    assert [each.error_code for each in response.groups] == [E.NONE, E.INVALID_REQUEST]


async def test_a_client_reads_its_own_commit(world: World) -> None:
    world.groups.world.store.at_once = False
    world.commit(9, {("t", 0): 5})
    answer = world.fetch(8, all_of())
    assert inspect.isawaitable(answer), "the commit is pending"
    world.groups.world.store.at_once = True
    assert found(await answer) == {("t", 0): 5}


async def test_where_a_commit_is_lost_the_client_looks_for_the_coordinator(world: World) -> None:
    world.groups.world.store.at_once = False
    world.commit(9, {("t", 0): 5})
    (group,) = (await world.fetch(8, all_of())).groups
    assert group.error_code == E.NOT_COORDINATOR


def test_offsets_of_an_earlier_topic_of_the_name_are_left_out(world: World) -> None:
    world.committed(9, {("t", 0): 5})
    topic = world.metadata.cluster.topic("t")
    assert topic is not None
    topic.topic_id = b"later".ljust(16)
    assert found(world.fetch(8, all_of())) == {}
    assert found(world.fetch(8, all_of(partitions=[0]))) == {("t", 0): -1}


# --- OffsetDelete -------------------------------------------------------------------------------------------


def delete(world: World, group_id: str, *places: TopicPartition) -> Any:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in places
    ]
    handler = OffsetDelete(world.groups(), world.metadata.cluster)
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    return world.groups.response(handler.handle(client(), header(0), request))


def test_offsets_are_deleted(world: World) -> None:
    world.committed(9, {("t", 0): 5, ("t", 1): 6})
    response = delete(world, "g", ("t", 0), ("t", 7))
    assert response.error_code == E.NONE
    assert world.errors(response) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert found(world.fetch(8, all_of())) == {("t", 1): 6}
    written = len(world.groups.world.store.written)
    assert world.errors(delete(world, "g", ("t", 0))) == [E.NONE], "it is gone already"
    assert len(world.groups.world.store.written) == written


def test_errors_of_a_deletion(world: World) -> None:
    assert delete(world, "", ("t", 0)).error_code == E.INVALID_GROUP_ID
    assert world.groups.lookups == []
    for places in ([("t", 0)], [("nope", 0)], []):
        assert delete(world, "x", *places).error_code == E.GROUP_ID_NOT_FOUND
    world.groups.error = E.NOT_COORDINATOR
    assert delete(world, "x", ("t", 0)).error_code == E.NOT_COORDINATOR


def test_offsets_that_a_member_may_read_stay(world: World) -> None:
    world.groups.world.stable(1, group="g")
    world.committed(9, {("t", 0): 5})
    assert world.errors(delete(world, "g", ("t", 0))) == [E.GROUP_SUBSCRIBED_TO_TOPIC]
    world.groups.world.stable(1, group="h", protocol_type="connect")
    assert delete(world, "h", ("t", 0)).error_code == E.NON_EMPTY_GROUP


# --- TxnOffsetCommit ----------------------------------------------------------------------------------------


def test_within_a_transaction_that_is_open_here(world: World) -> None:
    assert world.errors(world.txn_commit(5, "t", "u")) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    (transaction,) = world.groups.world.store.transactions
    assert (transaction.producer_id, transaction.producer_epoch, transaction.verified) == (7, 1, False)
    assert world.questions == []


def test_without_a_known_partition_nothing_is_looked_up(world: World) -> None:
    assert world.errors(world.txn_commit(5, "u")) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.errors(world.txn_commit(5, "t", group_id="")) == [E.INVALID_GROUP_ID]
    assert world.groups.lookups == []


@pytest.mark.parametrize("version", [4, 5])
async def test_the_transactions_coordinator_verifies_first(world: World, version: int) -> None:
    world.groups.world.store.is_verified = False
    asked = asyncio.ensure_future(await_response(world.txn_commit(version, "t")))
    for _ in range(3):
        await asyncio.sleep(0)
        world.groups.world.loop.turn()
    response: Any = await asked
    assert [each.error_code for each in response.topics[0].partitions] == [E.NONE]
    ((request, partitions),) = world.questions
    assert (request.transactional_id, request.producer_id, request.add) == ("x", 7, version >= 5)
    assert partitions == [(CONSUMER_OFFSETS, 7)]
    assert [each.guard for each in world.groups.world.store.transactions] == [5]


@pytest.mark.parametrize(
    ("version", "verdict", "expected"),
    [
        (5, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (5, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (4, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (1, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE),
        (5, E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
        (4, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
    ],
)
async def test_its_errors_in_terms_of_the_version(
    world: World, version: int, verdict: ErrorCode, expected: ErrorCode
) -> None:
    world.groups.world.store.is_verified = False
    world.verdict = verdict
    response = await world.txn_commit(version, "t")
    assert [each.error_code for each in response.topics[0].partitions] == [expected]
    assert not world.groups.world.store.transactions


def test_the_groups_error_within_a_transaction(world: World) -> None:
    world.groups.error = E.NOT_COORDINATOR
    assert world.errors(world.txn_commit(5, "t")) == [E.NOT_COORDINATOR]
