"""The Fetch handler without a broker: at once or later, sessions, errors."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

from lockstep.broker.fetch.api.fetch import Fetch
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.fetch.fetch_requests import FetchRequests
from lockstep.broker.fetch.fetch_session import FetchSessions
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    PendingResponse,
    await_response,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from lockstep.protocol.records.record import iter_records
from tests.broker.fake_partitions import FakeCluster, header_of
from tests.broker.wire import batch, fetch_request
from tests.support.cases import each_case


def values(data: PartitionData) -> list[bytes | None]:
    """The records of a response that is not encoded yet."""
    batches = data.records or []
    return [record.value for each in batches for record in iter_records(cast(bytes, each))]


class Handler:
    """The handler over one topic `t` of two empty partitions, led by node 1; node 2 is at host-2:9."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.topic = self.cluster.add("t", 2)
        self.purgatory = FetchPurgatory(asyncio.get_running_loop())
        sessions = FetchSessions(10, 100, time.monotonic, lambda largest: 7)
        endpoints = SimpleNamespace(of=lambda node_id, client: Endpoint(node_id, f"host-{node_id}", 9, None))
        self.fetch = Fetch(
            FetchRequests(
                self.cluster(),
                sessions,
                self.purgatory,
                UnsentBytes(),
                cast(NodeEndpoints, endpoints),
                lambda node_id, group_id: True,
            )
        )

    def handle(self, request: FetchRequest, version: int = 12) -> HandlerResponse:
        return self.fetch.handle(cast(ClientContext, None), header_of(self.fetch.api_key, version), request)

    def write(self, *data: bytes) -> None:
        self.purgatory.wake(self.cluster.write("t", *data))


async def test_there_is_an_answer_at_once_or_later() -> None:
    handler = Handler()
    handler.write(batch(b"a"))
    response = handler.handle(fetch_request({"t": {0: 0}}))
    assert isinstance(response, FetchResponse)
    assert values(response.responses[0].partitions[0]) == [b"a"]
    waiting = handler.handle(fetch_request({"t": {0: 1, 1: 0}}, max_wait_ms=60_000))
    assert isinstance(waiting, PendingResponse) and waiting.is_long_poll and not waiting.holds_request
    assert handler.purgatory.count == 1
    handler.write(batch(b"b"))
    await asyncio.sleep(0)
    assert handler.purgatory.count == 0
    assert isinstance(waiting.response, FetchResponse)
    assert [values(data) for data in waiting.response.responses[0].partitions] == [[b"b"], []]


async def test_what_waits_is_answered_in_the_end_without_records() -> None:
    handler = Handler()
    waiting = handler.handle(fetch_request({"t": {0: 0}}, max_wait_ms=1))
    response = await asyncio.wait_for(await_response(waiting), 30)
    assert isinstance(response, FetchResponse)
    assert values(response.responses[0].partitions[0]) == []
    for limits in ({"max_wait_ms": 0}, {"max_wait_ms": 60_000, "min_bytes": 0}):
        assert isinstance(handler.handle(fetch_request({"t": {0: 0}}, **limits)), FetchResponse)


async def test_min_bytes_that_never_come() -> None:
    handler = Handler()
    handler.write(batch(b"a"))
    waiting = handler.handle(fetch_request({"t": {0: 0}}, max_wait_ms=1, min_bytes=2**31 - 1))
    response = await asyncio.wait_for(await_response(waiting), 30)
    assert isinstance(response, FetchResponse)
    assert values(response.responses[0].partitions[0]) == [b"a"]


async def test_a_client_that_leaves_ends_its_wait() -> None:
    handler = Handler()
    waiting = handler.handle(fetch_request({"t": {0: 0}}, max_wait_ms=60_000))
    assert isinstance(waiting, PendingResponse) and waiting.on_disconnect is not None
    waiting.on_disconnect()
    assert (handler.purgatory.count, waiting.done) == (0, False)


async def test_an_attempt_that_fails_fails_its_request_alone() -> None:
    handler = Handler()
    waiting = handler.handle(fetch_request({"t": {0: 0}}, max_wait_ms=60_000))
    handler.cluster.group.read = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    handler.write(batch(b"a"))
    await asyncio.sleep(0)
    assert isinstance(waiting, PendingResponse) and isinstance(waiting.failure, ZeroDivisionError)


async def test_batches_that_came_to_be_on_the_disk_are_read_there() -> None:
    handler = Handler()
    waiting = handler.handle(fetch_request({"t": {0: 0}}, max_wait_ms=60_000))
    handler.cluster.group.cold = True
    handler.write(batch(b"a"))
    response = await asyncio.wait_for(await_response(waiting), 30)
    assert isinstance(response, FetchResponse)
    assert values(response.responses[0].partitions[0]) == [b"a"]


async def test_a_session_that_is_not_here_is_the_error_of_the_answer() -> None:
    response = Handler().handle(FetchRequest(session_id=5, session_epoch=3))
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@each_case("version", [15, 16])
async def test_the_leader_is_named_since_version_16(version: int) -> None:
    handler = Handler()
    handler.cluster.group.is_leader, handler.cluster.group.leader_id = False, 2
    request = fetch_request({"t": {0: 0}}, max_wait_ms=60_000)
    request.topics[0].topic_id = handler.topic.topic_id
    response = handler.handle(request, version)
    assert isinstance(response, FetchResponse)
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    named = version >= 16
    assert [each.host for each in response.node_endpoints] == (["host-2"] if named else [])
    assert data.current_leader.leader_id == (2 if named else -1)
