"""The handlers of transactions without a broker and without a coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, cast

import pytest

from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import Needs
from lockstep.broker.transactions.api import build_handlers
from lockstep.broker.transactions.api.add_offsets_to_txn import AddOffsetsToTxn
from lockstep.broker.transactions.api.add_partitions_to_txn import AddPartitionsToTxn
from lockstep.broker.transactions.api.describe_transactions import DescribeTransactions
from lockstep.broker.transactions.api.end_txn import EndTxn
from lockstep.broker.transactions.api.init_producer_id import InitProducerId
from lockstep.broker.transactions.api.list_transactions import ListTransactions
from lockstep.broker.transactions.api.write_txn_markers import WriteTxnMarkers
from lockstep.broker.transactions.marker_sender import MarkerSender
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_records import TransactionMetadata, TransactionState
from lockstep.broker.transactions.verification_client import VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from lockstep.protocol.messages.describe_transactions import DescribeTransactionsRequest
from lockstep.protocol.messages.end_txn import EndTxnRequest
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.list_transactions import ListTransactionsRequest
from lockstep.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lockstep.protocol.staged_messages import staged_transactional_id
from lockstep.storage.types import StorageError
from tests.broker.fakes import FakeMetadata, client, header
from tests.support.cases import each_case

E = ErrorCode
TopicPartition = tuple[str, int]
NOW_MS = 50_000


def metadata_of(
    producer_id: int, state: TransactionState, *partitions: TopicPartition
) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=2,
        timeout_ms=60_000,
        state=state,
        partitions=partitions,
        start_ms=10_000,
    )


class FakeTransactions:
    """Notes the calls of its coordinators; `error`: each of them fails with it."""

    def __init__(self) -> None:
        self.error = E.NONE
        self.calls: list[tuple[Any, ...]] = []
        self.ids = {
            "a": metadata_of(1, TransactionState.EMPTY),
            "b": metadata_of(2, TransactionState.ONGOING, ("t", 0)),
        }

    def __call__(self) -> TransactionCoordinators:
        """The same as handlers take it."""
        return cast(TransactionCoordinators, self)

    def lapsed_shards(self, keys: Sequence[str] = ()) -> list[Sequence[str]]:
        """Notes in its result what was asked."""
        return [keys]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not E.NONE:
            raise RequestError(self.error, "no")

    async def init_producer_id(self, *call: Any) -> tuple[int, int]:
        self._note(*call)
        return 7, 1

    async def add_partitions(self, *call: Any) -> None:
        self._note(*call)

    async def verify(
        self, request: VerificationRequest, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        self._note(request, partitions)
        return dict.fromkeys(partitions, E.TRANSACTION_ABORTABLE)

    async def end(self, *call: Any) -> tuple[int, int]:
        self._note(*call)
        return 7, 2

    def describe(self, transactional_id: str) -> TransactionMetadata:
        self._note(transactional_id)
        if transactional_id not in self.ids:
            raise RequestError(E.TRANSACTIONAL_ID_NOT_FOUND, "unknown")
        return self.ids[transactional_id]

    def list_all(self) -> Iterator[tuple[str, TransactionMetadata]]:
        self._note()
        return iter(self.ids.items())


class FakeProducerIds:
    def __init__(self, error: StorageError | None = None) -> None:
        self._error = error

    async def take(self) -> int:
        if self._error is not None:
            raise self._error
        return 41


FENCED = pytest.mark.parametrize("is_known", [False, True], ids=["old", "new"])
"""PRODUCER_FENCED is known to versions from KIP-588 on."""


async def respond(response: Any) -> Any:
    return await response if isinstance(response, Awaitable) else response


# --- read barriers ------------------------------------------------------------------------------------------

SEVERAL = [AddPartitionsToTxnTransaction(transactional_id=name) for name in ("a", "b")]


@each_case(
    ("request_", "keys"),
    [
        (InitProducerIdRequest(transactional_id="a"), [["a"]]),
        (InitProducerIdRequest(transactional_id=None), []),
        (AddPartitionsToTxnRequest(v3_and_below_transactional_id="a"), [["a"]]),
        (AddPartitionsToTxnRequest(transactions=SEVERAL), [["a", "b"]]),
        (AddOffsetsToTxnRequest(transactional_id="a"), [["a"]]),
        (EndTxnRequest(transactional_id="a"), [["a"]]),
        (ListTransactionsRequest(), [[]]),
        (DescribeTransactionsRequest(transactional_ids=["a"]), [[]]),
        (WriteTxnMarkersRequest(), []),
    ],
)
def test_the_shards_of_a_request(request_: Struct, keys: list[list[str]]) -> None:
    markers = cast(MarkerSender, FakeMarkers())
    cluster = FakeMetadata().cluster
    room = build_handlers(FakeTransactions()(), FakeProducerIds(), markers, cluster, len, lambda: NOW_MS)
    (handler,) = [each for each in room if each.api_key == request_.SCHEMA.api_key]
    found: Any = handler.lapsed_leaderships(request_)
    assert [list(each) for each in found] == keys
    assert (handler.needs is Needs.COORDINATOR) == (type(request_) is not WriteTxnMarkersRequest)


# --- InitProducerId -----------------------------------------------------------------------------------------


async def init(transactions: FakeTransactions, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(transaction_timeout_ms=1_000, **fields)
    handler = InitProducerId(transactions(), FakeProducerIds())
    response = await respond(handler.handle(client(), header(version), request))
    return response.error_code, response.producer_id, response.producer_epoch


async def test_identities() -> None:
    transactions = FakeTransactions()
    assert await init(transactions, transactional_id=None) == (E.NONE, 41, 0)
    assert transactions.calls == []
    assert await init(transactions, transactional_id="a", producer_id=3, producer_epoch=4) == (E.NONE, 7, 1)
    assert transactions.calls == [("a", 1_000, 3, 4)]


@each_case(
    "fields",
    [
        {"transactional_id": "a", "producer_id": 3},
        {"transactional_id": "a", "producer_epoch": 3},
        {"transactional_id": staged_transactional_id("q")},
    ],
)
async def test_requests_that_no_coordinator_gets(fields: dict[str, Any]) -> None:
    transactions = FakeTransactions()
    assert await init(transactions, **fields) == (E.INVALID_REQUEST, -1, -1)
    assert transactions.calls == []


@FENCED
async def test_a_fenced_producer_gets_no_identity(is_known: bool) -> None:
    transactions = FakeTransactions()
    transactions.error = E.PRODUCER_FENCED
    error = E.PRODUCER_FENCED if is_known else E.INVALID_PRODUCER_EPOCH
    assert await init(transactions, 4 if is_known else 3, transactional_id="a") == (error, -1, -1)


async def test_without_an_id_the_client_retries() -> None:
    handler = InitProducerId(FakeTransactions()(), FakeProducerIds(StorageError("full")))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    response = await respond(handler.handle(client(), header(5), request))
    assert (response.error_code, response.producer_id) == (E.COORDINATOR_LOAD_IN_PROGRESS, -1)


# --- partitions of a transaction ----------------------------------------------------------------------------


def topics(*places: TopicPartition) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places]


def codes_of(found: Any) -> dict[TopicPartition, int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in found
        for each in topic.results_by_partition
    }


async def add(
    transactions: FakeTransactions, *places: TopicPartition, version: int = 3
) -> dict[TopicPartition, int]:
    metadata = FakeMetadata()
    metadata.add_topic("t")
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="a",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=topics(*places),
    )
    handler = AddPartitionsToTxn(transactions(), metadata.cluster)
    response = await respond(handler.handle(client(), header(version), request))
    return codes_of(response.results_by_topic_v3_and_below)


async def test_partitions_take_part() -> None:
    transactions = FakeTransactions()
    assert await add(transactions, ("t", 0)) == {("t", 0): E.NONE}
    assert transactions.calls == [("a", 7, 1, [("t", 0)], 0)]


async def test_one_unknown_partition_rejects_the_others() -> None:
    transactions = FakeTransactions()
    assert await add(transactions, ("t", 0), ("t", 1), (CONSUMER_OFFSETS, 0)) == {
        ("t", 0): E.OPERATION_NOT_ATTEMPTED,
        ("t", 1): E.UNKNOWN_TOPIC_OR_PARTITION,
        (CONSUMER_OFFSETS, 0): E.TOPIC_AUTHORIZATION_FAILED,
    }
    assert transactions.calls == []


@FENCED
async def test_a_fenced_producer_adds_nothing(is_known: bool) -> None:
    transactions = FakeTransactions()
    transactions.error = E.PRODUCER_FENCED
    error = E.PRODUCER_FENCED if is_known else E.INVALID_PRODUCER_EPOCH
    assert await add(transactions, ("t", 0), version=2 if is_known else 1) == {("t", 0): error}


async def test_brokers_request_several_transactions() -> None:
    transactions = FakeTransactions()
    metadata = FakeMetadata()
    metadata.add_topic("t")
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=7,
                producer_epoch=1,
                verify_only=verify_only,
                topics=topics(("t", 0)),
            )
            for name, verify_only in (("a", True), ("b", False))
        ]
    )
    handler = AddPartitionsToTxn(transactions(), metadata.cluster)
    response = await respond(handler.handle(client(), header(5), request))
    assert [
        (each.transactional_id, codes_of(each.topic_results)) for each in response.results_by_transaction
    ] == [
        ("a", {("t", 0): E.TRANSACTION_ABORTABLE}),
        ("b", {("t", 0): E.NONE}),
    ]
    assert transactions.calls == [
        (VerificationRequest("a", 7, 1, add=False), [("t", 0)]),
        ("b", 7, 1, [("t", 0)], 2),
    ]


@each_case(
    ("version", "error", "expected"),
    [
        (4, E.NONE, E.NONE),
        (2, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
        (1, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (4, E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    ],
)
async def test_a_groups_partition_takes_part(version: int, error: ErrorCode, expected: ErrorCode) -> None:
    transactions = FakeTransactions()
    transactions.error = error
    request = AddOffsetsToTxnRequest(transactional_id="a", producer_id=7, producer_epoch=1, group_id="four")
    handler = AddOffsetsToTxn(transactions(), len)
    response = await respond(handler.handle(client(), header(version), request))
    assert response.error_code == expected
    assert transactions.calls == [("a", 7, 1, [(CONSUMER_OFFSETS, 4)], 0)]


# --- EndTxn -------------------------------------------------------------------------------------------------


@each_case(
    ("version", "error", "expected"),
    [
        (5, E.NONE, (E.NONE, 7, 2)),
        (2, E.PRODUCER_FENCED, (E.PRODUCER_FENCED, -1, -1)),
        (1, E.PRODUCER_FENCED, (E.INVALID_PRODUCER_EPOCH, -1, -1)),
        (1, E.INVALID_TXN_STATE, (E.INVALID_TXN_STATE, -1, -1)),
    ],
)
async def test_a_transaction_ends(version: int, error: ErrorCode, expected: tuple[int, int, int]) -> None:
    transactions = FakeTransactions()
    transactions.error = error
    request = EndTxnRequest(transactional_id="a", producer_id=7, producer_epoch=1, committed=True)
    response = await respond(EndTxn(transactions()).handle(client(), header(version), request))
    assert (response.error_code, response.producer_id, response.producer_epoch) == expected
    assert transactions.calls == [("a", 7, 1, True, 2 if version >= 5 else 0)]


# --- tools --------------------------------------------------------------------------------------------------


async def list_ids(transactions: FakeTransactions, **filters: Any) -> tuple[int, list[str], list[str]]:
    handler = ListTransactions(transactions(), lambda: NOW_MS)
    response = await respond(handler.handle(client(), header(2), ListTransactionsRequest(**filters)))
    listed = [each.transactional_id for each in response.transaction_states]
    return response.error_code, listed, response.unknown_state_filters


@each_case(
    ("filters", "expected"),
    [
        ({}, ["a", "b"]),
        ({"state_filters": ["Ongoing"]}, ["b"]),
        ({"transactional_id_pattern": ""}, ["a", "b"]),
        ({"transactional_id_pattern": "b.*|a", "state_filters": ["Empty"]}, ["a"]),
        ({"duration_filter": -7, "state_filters": ["Ongoing"]}, ["b"]),
        ({"producer_id_filters": [1, 9]}, ["a"]),
        ({"duration_filter": 39_999}, ["a", "b"]),
        ({"duration_filter": 40_000}, []),
        ({"transactional_id_pattern": "a|x"}, ["a"]),
    ],
)
async def test_filters_of_a_list(filters: dict[str, Any], expected: list[str]) -> None:
    assert await list_ids(FakeTransactions(), **filters) == (E.NONE, expected, [])


async def test_errors_of_a_list() -> None:
    transactions = FakeTransactions()
    assert await list_ids(transactions, state_filters=["Bogus"]) == (E.NONE, [], ["Bogus"])
    states = ["Ongoing", "Bogus"]
    assert await list_ids(transactions, state_filters=states) == (E.NONE, ["b"], ["Bogus"])
    for pattern in ("[", "(" * 20_000):
        found = await list_ids(transactions, transactional_id_pattern=pattern)
        assert found == (E.INVALID_REGULAR_EXPRESSION, [], [])
    transactions.error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert await list_ids(transactions) == (E.COORDINATOR_LOAD_IN_PROGRESS, [], [])


def test_descriptions() -> None:
    transactions = FakeTransactions()
    handler = DescribeTransactions(transactions())
    response: Any = handler.handle(
        client(), header(0), DescribeTransactionsRequest(transactional_ids=["b", "x", "b"])
    )
    known, unknown, again = response.transaction_states
    assert again == known
    assert (known.error_code, known.transaction_state, known.producer_id) == (E.NONE, "Ongoing", 2)
    assert [(each.topic, each.partitions) for each in known.topics] == [("t", [0])]
    assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (60_000, 10_000)
    assert (unknown.transactional_id, unknown.error_code) == ("x", E.TRANSACTIONAL_ID_NOT_FOUND)


# --- WriteTxnMarkers ----------------------------------------------------------------------------------------


class FakeMarkers:
    def __init__(self) -> None:
        self.written: list[tuple[list[TopicPartition], TxnMarkerEntry]] = []

    async def write_here(
        self, partitions: list[TopicPartition], marker: TxnMarkerEntry
    ) -> dict[TopicPartition, ErrorCode]:
        self.written.append((partitions, marker))
        return {each: E.NONE if each[1] == 0 else E.UNKNOWN_TOPIC_OR_PARTITION for each in partitions}


async def test_markers_of_an_administrator() -> None:
    markers = FakeMarkers()
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=1,
                transaction_result=False,
                coordinator_epoch=3,
                topics=named,
            )
            for producer_id, named in (
                (7, [WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])]),
                (8, []),
            )
        ]
    )
    response = await WriteTxnMarkers(cast(MarkerSender, markers)).handle(client(), header(1), request)
    (result,) = response.markers
    (topic,) = result.topics
    assert (result.producer_id, topic.name) == (7, "t")
    codes = [(each.partition_index, each.error_code) for each in topic.partitions]
    assert codes == [(0, E.NONE), (1, E.UNKNOWN_TOPIC_OR_PARTITION)]
    ((partitions, marker),) = markers.written
    assert partitions == [("t", 0), ("t", 1)]
    assert (marker.producer_id, marker.coordinator_epoch, marker.is_commit) == (7, 3, False)
