"""The Produce handler without a broker: what its response waits for, and which errors it gives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.metadata.lowest_sequences import LowestSequences
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.api.produce import Produce
from lockstep.broker.produce.append_result import AppendResult, DelayedAppend
from lockstep.broker.produce.delayed_produce import UnacknowledgedError
from lockstep.broker.requests import time_slices
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, PendingResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.staged_messages import staged_transactional_id
from tests.broker.fake_partitions import FakeCluster, FakeGroup, header_of
from tests.broker.wire import batch

DATA = batch(b"a")
WAITS = "waits for its coordinator"


class Group(FakeGroup):
    """Commits when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters: list[Callable[[BaseException | None], None]] = []

    def when_committed(self, waiter: Callable[[BaseException | None], None]) -> None:
        self.waiters.append(waiter)

    def commit(self, error: BaseException | None = None) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(error)


class Path:
    """An append path with the outcome of each partition index; offset 5 where the test gives none."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Any] = {}
        self.appended: list[int] = []
        self.delayed: list[DelayedAppend] = []
        self.producers = SimpleNamespace(knows=lambda *_: False)

    def append(self, log: Any, records: Any, limits: Any, version: int) -> AppendResult | DelayedAppend:
        outcome = self.outcomes.get(log.index)
        if isinstance(outcome, RequestError):
            raise outcome
        if outcome == WAITS:
            self.delayed.append(DelayedAppend())
            return self.delayed[-1]
        self.appended.append(log.index)
        return AppendResult(5, -1)


class Handler:
    """The handler over topic `t` of three partitions in one group."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.group = self.cluster.group = Group()
        self.cluster.add("t", 3)
        self.cluster.add("__consumer_offsets")
        self.cluster.first_sequences = LowestSequences()  # type: ignore[attr-defined]
        self.path = Path()
        self.asked: list[tuple[str, ...]] = []
        self.later: list[Callable[[], None]] = []
        endpoints = SimpleNamespace(of=lambda node_id, client: Endpoint(node_id, f"host-{node_id}", 9, None))

        def paths(*asked: str) -> Any:
            self.asked.append(asked)
            return {1: self.path}

        self.produce = Produce(
            self.cluster(),
            cast(Any, {1: self.path}),
            cast(NodeEndpoints, endpoints),
            time_slices.TimeSlicer(self.later.append),
            paths,
            paths,
        )

    def handle(
        self, *indexes: int, topic: str = "t", version: int = 10, acks: int = -1, **more: Any
    ) -> HandlerResponse:
        data = [PartitionProduceData(index=index, records=DATA) for index in indexes]
        request = ProduceRequest(
            acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=data)], **more
        )
        return self.produce.handle(
            cast(ClientContext, None), header_of(self.produce.api_key, version), request
        )

    def run_later(self) -> None:
        while self.later:
            self.later.pop(0)()


def results(response: object) -> list[tuple[int, int]]:
    """The error and base offset of each partition."""
    if isinstance(response, PendingResponse):
        assert response.done and response.failure is None
        response = response.response
    assert isinstance(response, ProduceResponse)
    return [(each.error_code, each.base_offset) for each in partitions(response)]


def partitions(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [each for topic in response.responses for each in topic.partition_responses]


def is_done(response: HandlerResponse) -> bool:
    assert isinstance(response, PendingResponse)
    return response.done


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.mark.parametrize("indexes", [(0,), (0, 1, 2)])
def test_a_response_waits_for_the_commit(handler: Handler, indexes: tuple[int, ...]) -> None:
    response = handler.handle(*indexes)
    assert not is_done(response) and len(handler.group.waiters) == 1
    handler.group.commit()
    assert results(response) == [(0, 5)] * len(indexes)


def test_errors_that_rest_on_no_batch_need_no_commit(handler: Handler) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results(handler.handle(0, 1, topic="no")) == [(unknown, -1)] * 2
    assert results(handler.handle(3)) == [(unknown, -1)]
    assert results(handler.handle(0, topic="__consumer_offsets")) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
    assert results(handler.handle(0, acks=2)) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    handler.path.outcomes[0] = RequestError(ErrorCode.MESSAGE_TOO_LARGE, "large")
    assert results(handler.handle(0)) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert handler.group.waiters == []


def test_errors_that_rest_on_earlier_batches_wait_for_their_commit(handler: Handler) -> None:
    handler.path.outcomes[0] = RequestError(ErrorCode.POLICY_VIOLATION, "a conflict")
    response = handler.handle(0)
    assert not is_done(response)
    handler.group.commit()
    assert results(response) == [(ErrorCode.POLICY_VIOLATION, -1)]


def test_a_lost_leadership_takes_back_every_result_that_waits(handler: Handler) -> None:
    handler.path.outcomes = {
        1: RequestError(ErrorCode.POLICY_VIOLATION, "a conflict"),
        2: RequestError(ErrorCode.MESSAGE_TOO_LARGE, "large"),
    }
    handler.group.leader_id = 4
    response = handler.handle(0, 1, 2)
    handler.group.commit(ValueError("lost"))
    lost = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert results(response) == [lost, lost, (ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert isinstance(response, PendingResponse) and isinstance(response.response, ProduceResponse)
    assert [each.host for each in response.response.node_endpoints] == ["host-4"]
    assert [each.current_leader.leader_id for each in partitions(response.response)] == [4, 4, -1]


@pytest.mark.parametrize("version", [9, 10])
def test_the_leader_is_named_since_version_10(handler: Handler, version: int) -> None:
    handler.group.is_leader, handler.group.leader_id = False, 4
    response = handler.handle(0, version=version)
    assert results(response) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert isinstance(response, ProduceResponse)
    assert len(response.node_endpoints) == (version >= 10)


def test_a_delayed_append_waits_for_its_commit_from_its_outcome_on(handler: Handler) -> None:
    handler.path.outcomes = {1: WAITS, 2: WAITS}
    response = handler.handle(0, 1, 2, transactional_id="id")
    assert handler.asked == [("id",)]
    handler.group.commit()
    assert not is_done(response)
    handler.path.delayed[0].on_outcome(RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "unknown"))
    handler.path.delayed[1].on_outcome(AppendResult(9, -1))
    assert not is_done(response)
    handler.group.commit()
    assert results(response) == [(0, 5), (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1), (0, 9)]


def test_staged_batches_have_their_own_path(handler: Handler) -> None:
    name = staged_transactional_id("query")
    handler.handle(0, transactional_id=name)
    assert handler.asked == [(name, "query")]


# --- acks=0 -----------------------------------------------------------------------------------------------


def test_without_acks_the_request_is_in_flight_until_the_commit(handler: Handler) -> None:
    response = handler.handle(0, acks=0)
    assert not is_done(response)
    handler.group.commit()
    assert isinstance(response, PendingResponse) and response.done
    assert (response.response, response.failure) == (None, None)


def test_without_acks_an_error_ends_the_connection(handler: Handler) -> None:
    handler.path.outcomes[1] = RequestError(ErrorCode.POLICY_VIOLATION, "a conflict")
    with pytest.raises(UnacknowledgedError, match="a conflict"):
        handler.handle(0, 1, acks=0)
    handler.path.outcomes[1] = WAITS
    response = handler.handle(0, 1, acks=0)
    handler.path.delayed[0].on_outcome(RequestError(ErrorCode.POLICY_VIOLATION, "a conflict"))
    assert isinstance(response, PendingResponse) and isinstance(response.failure, UnacknowledgedError)
    handler.group.commit()


# --- slices -----------------------------------------------------------------------------------------------


def test_what_takes_long_goes_on_in_later_slices(handler: Handler, one_a_turn: None) -> None:
    handler.path.outcomes[1] = RequestError(ErrorCode.MESSAGE_TOO_LARGE, "large")
    response = handler.handle(0, 1, 2)
    assert isinstance(response, PendingResponse) and response.blocks_connection
    assert len(handler.path.appended) < 2
    handler.run_later()
    delayed = response.response
    assert isinstance(delayed, PendingResponse) and not delayed.done
    handler.group.commit()
    assert results(delayed) == [(0, 5), (ErrorCode.MESSAGE_TOO_LARGE, -1), (0, 5)]
    assert handler.path.appended == [0, 2]


def test_without_the_leadership_the_later_batches_are_rejected(handler: Handler, one_a_turn: None) -> None:
    handler.path.outcomes[1] = RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "lost")
    response = handler.handle(0, 1, 2)
    handler.run_later()
    handler.group.commit()
    assert isinstance(response, PendingResponse)
    errors = [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    assert [error for error, _ in results(response.response)] == errors
    assert handler.path.appended == [0]
