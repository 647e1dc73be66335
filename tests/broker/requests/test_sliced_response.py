"""Requests that name many groups, when each name takes longer than a turn of the loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.requests import sliced_response, time_slices
from lockstep.broker.requests.request_context import EncodedResponse, PendingResponse, await_response
from lockstep.broker.requests.sliced_response import SlicedResponse, encode_large
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.server import Broker
from lockstep.protocol.compiler import encode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.heartbeat import HeartbeatResponse
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.groups.api.offsets import commit, fetch, ready
from tests.broker.waiting import until
from tests.broker.wire import Client

NAMES = [*(f"g{number}" for number in range(30)), "g"]


def asked() -> list[tuple[Struct, int]]:
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
    return [
        (FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
        (DescribeGroupsRequest(groups=NAMES, include_authorized_operations=True), 5),
        (OffsetFetchRequest(groups=groups), 8),
    ]


@pytest.mark.parametrize("place", range(3))
async def test_answers_are_the_same_as_in_one_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    await commit(client, 9, {("t", 0): 5}, await ready(client))
    request, version = asked()[place]
    at_once = await client.call(request, version)
    with monkeypatch.context() as slow:
        slow.setattr(time_slices, "clock", itertools.count(0.0, 0.03).__next__)
        assert repr(await client.call(request, version)) == repr(at_once)


async def test_groups_are_deleted_each_in_its_turn(client: Client, one_a_turn: None) -> None:
    await commit(client, 9, {("t", 0): 5}, await ready(client))
    answer = await client.call(DeleteGroupsRequest(groups_names=NAMES), 2)
    assert [each.group_id for each in answer.results] == NAMES
    assert [each.error_code for each in answer.results] == [*[ErrorCode.GROUP_ID_NOT_FOUND] * 30, 0]
    assert await fetch(client, "g", {"t": [0]}) == {("t", 0): (-1, -1, "")}


async def test_commits_under_way_are_waited_for(broker: Broker, client: Client, one_a_turn: None) -> None:
    await ready(client)
    store = broker.assembly.consumer_groups.store("g")
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]
    request = OffsetFetchRequest(groups=groups)
    client.send(request, 8)
    store.append("g", [offset_record("g", "t", 0, CommittedOffset(5))], lambda error: None)
    _, answer = await client.receive(request, 8)
    found = answer.groups  # type: ignore[attr-defined]
    assert [each.topics[0].partitions[0].committed_offset for each in found if each.topics] == [5]


async def test_other_requests_run_between_slices(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(client, 9, {("t", 0): 5}, await ready(client))
    other = await Client.connect(broker.port)
    groups = broker.assembly.consumer_groups
    described: list[str] = []
    of = groups.of

    def slowly(group_id: str) -> Any:
        described.append(group_id)
        return of(group_id)

    monkeypatch.setattr(groups, "of", slowly)
    monkeypatch.setattr(time_slices, "clock", itertools.count(0.0, 0.03).__next__)
    request = DescribeGroupsRequest(groups=NAMES + [f"x{number}" for number in range(3_000)])
    client.send(request, 5)
    await until(lambda: described != [])
    await other.call(MetadataRequest(topics=[]), 9)
    heard_after = len(described)
    _, answer = await client.receive(request, 5)
    assert heard_after < len(described) == len(NAMES) + 3_000
    assert len(answer.groups) == len(described)  # type: ignore[attr-defined]
    await other.close()


async def test_what_is_raised_in_a_later_turn_fails_the_request_and_an_abandoned_one_stops() -> None:
    taken: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(2):
            yield
            taken.append(number)
        raise ZeroDivisionError

    shared = TimeSlicer(asyncio.get_running_loop().call_soon)
    broken = SlicedResponse(shared, steps(), lambda: "never")
    await until(lambda: broken.done)
    assert isinstance(broken.failure, ZeroDivisionError)
    left = SlicedResponse(shared, steps(), lambda: "never")
    assert left.on_disconnect is not None
    left.on_disconnect()
    await asyncio.sleep(0.01)
    assert taken == [0, 1] and not left.done


async def test_an_answer_that_has_to_wait_is_waited_for() -> None:
    async def answer() -> str:
        await asyncio.sleep(0)
        return "there"

    later = SlicedResponse(TimeSlicer(asyncio.get_running_loop().call_soon), iter([]), answer)
    await until(lambda: later.done)
    waiting = later.response
    assert isinstance(waiting, PendingResponse)
    await until(lambda: waiting.done)
    assert waiting.response == "there"


async def test_a_response_of_many_items_is_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    response = HeartbeatResponse(error_code=7)
    assert encode_large(response, 4, sliced_response.MAX_ITEMS_ENCODED_HERE) is response
    threads: list[threading.Thread] = []

    def noted(message: object, version: int) -> list[Any]:
        threads.append(threading.current_thread())
        return encode(message, version)

    monkeypatch.setattr(sliced_response, "encode", noted)
    encoded = await await_response(encode_large(response, 4, sliced_response.MAX_ITEMS_ENCODED_HERE + 1))
    assert isinstance(encoded, EncodedResponse)
    assert b"".join(encoded.body) == b"".join(encode(response, 4))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
