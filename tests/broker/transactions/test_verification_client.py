"""Whether a partition is part of a transaction: asked of the id's coordinator, on whatever node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions.verification_client import (
    Codes,
    TopicPartition,
    Verification,
    VerificationRequest,
    producer_error,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader
from tests.support.cases import each_case

NONE = ErrorCode.NONE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
ASKED = VerificationRequest("id", 7, 1, add=False)
ADDED = ASKED._replace(add=True)


class Coordinators:
    """Knows one transaction: `partitions` are in it."""

    def __init__(self, number: int | None = 2) -> None:
        self.number = number
        self.partitions: set[TopicPartition] = {("t", 0)}
        self.refusal: RequestError | None = None
        self.is_busy = False

    def log_group_of(self, transactional_id: str) -> int | None:
        return self.number

    async def verify(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        assert request._replace(add=False) == ASKED
        if self.refusal is not None:
            raise self.refusal
        if request.add:
            self.partitions |= set(places)
        return {each: NONE if each in self.partitions else ABORTABLE for each in places}

    def verify_now(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes | None:
        if self.refusal is not None:
            raise self.refusal
        return None if self.is_busy else {each: NONE for each in places}


class Way:
    """A `PeerRpc` to another node."""

    def __init__(self, other: Way | None = None) -> None:
        self.handlers: dict[RequestKind, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.other = other
        self.error: Exception | None = None
        self.answer: bytes | None = None

    async def request_from_leader(self, group: int, kind: RequestKind, body: bytes, *seconds: float) -> bytes:
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        assert self.other is not None and group == 2
        return await self.other.handlers[kind](1, body)


def verification(coordinators: Coordinators, way: Way | None = None) -> Verification:
    return Verification(coordinators, cast(PeerRpc | None, way))


def apart() -> tuple[Verification, Way, Coordinators, Way]:
    """Of a node that asks another one: its way, the other's coordinators and way."""
    coordinators, there = Coordinators(), Way()
    verification(coordinators, there)
    way = Way(there)
    return verification(Coordinators(), way), way, coordinators, there


async def test_a_request_to_another_node() -> None:
    asking, _, coordinators, _ = apart()
    places = [("t", 0), ("t", 1), ("other", 5)]
    assert await asking.verify(ASKED, places) == {
        ("t", 0): NONE,
        ("t", 1): ABORTABLE,
        ("other", 5): ABORTABLE,
    }
    assert coordinators.partitions == {("t", 0)}
    assert set((await asking.verify(ADDED, places)).values()) == {NONE}
    assert coordinators.partitions == set(places), "and added there"


async def test_a_single_node_verifies_locally() -> None:
    alone = verification(Coordinators())
    assert await alone.verify(ASKED, [("t", 1)]) == {("t", 1): ABORTABLE}


@each_case("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
async def test_a_refusal_is_that_of_every_partition(error: ErrorCode) -> None:
    asking, _, coordinators, _ = apart()
    coordinators.refusal = RequestError(error, "no")
    assert await asking.verify(ASKED, [("t", 0), ("t", 1)]) == {("t", 0): error, ("t", 1): error}


@each_case("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
async def test_a_node_that_is_not_the_coordinator_is_ignored(error: ErrorCode) -> None:
    """`request_from_leader` looks on when it is told so."""
    asking, _, coordinators, there = apart()
    coordinators.refusal = RequestError(error, "not here")
    body = json.dumps({"id": "id", "producer": 7, "epoch": 1, "add": False, "partitions": [["t", 0]]})
    with pytest.raises(NotLeaderHere):
        await there.handlers[RequestKind.VERIFY](2, body.encode())
    assert await asking.verify(ASKED, [("t", 0)]) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    alone = Coordinators()
    alone.refusal = coordinators.refusal
    assert verification(alone).verify_now(ASKED, [("t", 0)]) is None


async def test_nobody_answers() -> None:
    nowhere = verification(Coordinators(number=None))
    assert await nowhere.verify(ASKED, [("t", 0)]) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    asking, way, _, _ = apart()
    for error, code in (
        (NotLeader("nobody"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (PeerError("no"), ErrorCode.NETWORK_EXCEPTION),
        (RuntimeError("a fault of ours"), ErrorCode.NETWORK_EXCEPTION),
    ):
        way.error = error
        assert await asking.verify(ASKED, [("t", 0)]) == {("t", 0): code}


@each_case("answer", [b"", b"[]", b"[0, 0]", b"[99999]", b'{"a": 1}', b"null", b'["0"]'])
async def test_an_answer_that_makes_no_sense(answer: bytes) -> None:
    asking, way, _, _ = apart()
    way.answer = answer
    assert await asking.verify(ASKED, [("t", 0)]) == {("t", 0): ErrorCode.NETWORK_EXCEPTION}


@each_case(
    "said",
    [
        {},
        [],
        {"id": 1},
        {"id": "a", "producer": "7", "epoch": 1, "add": False, "partitions": []},
        {"id": "a", "producer": 7, "epoch": 1, "add": 0, "partitions": []},
        {"id": "a", "producer": 7, "epoch": 1, "add": False, "partitions": [["t"]]},
        {"id": "a", "producer": 7, "epoch": 1, "add": False, "partitions": [[0, "t"]]},
    ],
)
async def test_a_question_that_makes_no_sense(said: object) -> None:
    _, _, _, there = apart()
    with pytest.raises(PeerError, match="malformed"):
        await there.handlers[RequestKind.VERIFY](2, json.dumps(said).encode())
    with pytest.raises(PeerError, match="malformed"):
        await there.handlers[RequestKind.VERIFY](2, b"\xff{")


async def test_at_once_where_it_can_be() -> None:
    coordinators = Coordinators()
    here = verification(coordinators)
    assert here.verify_now(ASKED, [("t", 0)]) == {("t", 0): NONE}
    coordinators.is_busy = True
    assert here.verify_now(ASKED, [("t", 0)]) is None
    coordinators.refusal = RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "old")
    assert here.verify_now(ASKED, [("t", 0)]) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}


def test_the_errors_that_a_producer_gets() -> None:
    """As Apache Kafka 4.3.1 was seen to answer, or translates."""
    told = {
        (code, version): producer_error(code, version).error
        for code in (
            ABORTABLE,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
        for version in (9, 10, 11, 12)
    }
    assert [told[ABORTABLE, version] for version in (9, 10, 11, 12)] == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TXN_STATE,
        ABORTABLE,
        ABORTABLE,
    ]
    again = ErrorCode.NOT_ENOUGH_REPLICAS
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert [told[busy, version] for version in (9, 11, 12)] == [again, again, busy]
    for version in (9, 12):
        assert told[ErrorCode.PRODUCER_FENCED, version] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert told[ErrorCode.INVALID_PRODUCER_ID_MAPPING, version] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        for code in (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ):
            assert told[code, version] is again


async def test_a_stopped_question_stays_stopped() -> None:
    asking, way, _, _ = apart()
    way.error = asyncio.CancelledError()  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        await asking.verify(ASKED, [("t", 0)])
