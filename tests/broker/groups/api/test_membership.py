"""The membership APIs over the wire, against the real broker: every version, what is told, what waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client

E = ErrorCode


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(group_initial_rebalance_delay_ms="0")


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    await ready(connected)
    yield connected
    await connected.close()


async def ready(client: Client) -> None:
    """Wait until this broker coordinates groups."""
    for _ in range(100):
        answer = await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        if answer.error_code == 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("there is no coordinator")


def joining(group: str = "g", member: str = "", **more: Any) -> JoinGroupRequest:
    wanted: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000} | more
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
        **wanted,
    )


async def join(client: Client, version: int = 9, **more: Any) -> Any:
    answer = await client.call(joining(**more), version)
    if answer.error_code == E.MEMBER_ID_REQUIRED:
        answer = await client.call(joining(member=answer.member_id, **more), version)
    assert answer.error_code == 0
    return answer


async def sync(client: Client, joined: Any, version: int = 5) -> Any:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")],
    )
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return await client.call(request, version)


async def answered(client: Client, request: Any, version: int) -> Any:
    """The next answer, to a request that was sent before."""
    _, response = await asyncio.wait_for(client.receive(request, version), 20)
    return response


async def describe(client: Client, *groups: str, version: int = 6, **more: Any) -> list[DescribedGroup]:
    answer = await client.call(DescribeGroupsRequest(groups=list(groups), **more), version)
    found: list[DescribedGroup] = answer.groups
    return found


@pytest.mark.parametrize("version", range(10))
async def test_join_in_every_version(client: Client, version: int) -> None:
    joined = await join(client, version)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"meta")]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.member_id.startswith("test-")


@pytest.mark.parametrize("version", range(6))
async def test_sync_in_every_version(client: Client, version: int) -> None:
    joined = await join(client)
    synced = await sync(client, joined, version)
    assert (synced.error_code, synced.assignment) == (0, b"part")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    (described,) = await describe(client, "g")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    member = described.members[0]
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"part")


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat_in_every_version(client: Client, version: int) -> None:
    joined = await join(client)
    for member, error in ((joined.member_id, 0), ("unknown", E.UNKNOWN_MEMBER_ID)):
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert (await client.call(request, version)).error_code == error


@pytest.mark.parametrize("version", range(6))
async def test_leave_in_every_version(client: Client, version: int) -> None:
    joined = await join(client)
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    else:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    answer = await client.call(request, version)
    assert answer.error_code == 0
    assert [each.error_code for each in answer.members] == ([] if version < 3 else [0])
    again = await client.call(request, version)
    errors = [again.error_code] if version < 3 else [each.error_code for each in again.members]
    assert errors == [E.UNKNOWN_MEMBER_ID]
    (described,) = await describe(client, "g")
    assert (described.group_state, described.members) == ("Empty", [])


@pytest.mark.parametrize("version", range(7))
async def test_describe_in_every_version(client: Client, version: int) -> None:
    await join(client)
    more = {"include_authorized_operations": True} if version >= 3 else {}
    found, missing = await describe(client, "g", "missing", version=version, **more)
    assert (found.error_code, found.group_state) == (0, "CompletingRebalance")
    assert missing.group_state == "Dead"
    assert missing.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert missing.error_message == ("Group missing not found." if version >= 6 else None)
    assert found.authorized_operations == (0b110101001000 if version >= 3 else -(2**31))


@pytest.mark.parametrize("version", range(6))
async def test_list_in_every_version(client: Client, version: int) -> None:
    await join(client)
    (listed,) = (await client.call(ListGroupsRequest(), version)).groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert listed.group_state == ("CompletingRebalance" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", range(3))
async def test_delete_in_every_version(client: Client, version: int) -> None:
    joined = await join(client)
    request = DeleteGroupsRequest(groups_names=["g", "missing", "g"])
    answer = await client.call(request, version)
    errors = {each.group_id: each.error_code for each in answer.results}
    assert errors == {"g": E.NON_EMPTY_GROUP, "missing": E.GROUP_ID_NOT_FOUND}
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    await client.call(leave, 5)
    answer = await client.call(DeleteGroupsRequest(groups_names=["g"]), version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [("g", 0)]
    assert (await client.call(ListGroupsRequest(), 5)).groups == []
    assert (await client.call(DeleteGroupsRequest(), version)).results == []


async def test_no_coordinator_yet(broker: Broker) -> None:
    client = await Client.connect(broker.port)
    assert (await client.call(joining(), 9)).error_code == E.NOT_COORDINATOR
    assert (await client.call(ListGroupsRequest(), 5)).groups == []
    answer = await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert answer.results[0].error_code == E.NOT_COORDINATOR
    (described,) = await describe(client, "g")
    assert described.error_code == E.NOT_COORDINATOR
    await client.close()


async def test_long_names(client: Client) -> None:
    """The longest that fit the wire: the member id made of them must fit, too."""
    longest = "é" * (0x7FFF // 2)
    joined = await join(client, group_instance_id=longest)
    assert joined.member_id.startswith("éééé")
    synced = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined.member_id,
        group_instance_id=longest,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert (await client.call(synced, 5)).error_code == 0


async def test_requests_behind_a_waiting_join_are_answered_after_it(client: Client, broker: Broker) -> None:
    first = await join(client)
    client.send(joining(), 3)
    client.send(HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id), 4)
    other = await Client.connect(broker.port)
    for _ in range(100):
        (described,) = await describe(other, "g")
        if len(described.members) == 2:
            break
    assert described.group_state == "PreparingRebalance"
    again = await other.call(joining(member=first.member_id), 9)
    assert again.error_code == 0
    assert len(again.members) == 2
    joined = await answered(client, joining(), 3)
    assert (joined.error_code, joined.generation_id) == (0, 2)
    heartbeat = await answered(client, HeartbeatRequest(), 4)
    assert heartbeat.error_code == E.REBALANCE_IN_PROGRESS
    await other.close()


async def test_a_waiting_join_is_not_idle(start_broker: StartBroker) -> None:
    broker = await start_broker(
        group_initial_rebalance_delay_ms="1000",
        connections_max_idle_ms="200",
        group_min_session_timeout_ms="1",
    )
    client = await Client.connect(broker.port)
    await ready(client)
    assert (await client.call(joining(), 3)).error_code == 0
    await client.close()


async def test_a_waiting_join_holds_no_share_of_the_requests_in_flight(
    client: Client, broker: Broker
) -> None:
    await join(client)
    client.send(joining(), 3)
    other = await Client.connect(broker.port)
    for _ in range(100):
        if len((await describe(other, "g"))[0].members) == 2:
            break
    assert broker.assembly.connections is not None
    assert broker.assembly.connections.in_flight_bytes == 0
    await other.close()


async def test_members_are_taken_over_by_the_next_broker(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = {"group_initial_rebalance_delay_ms": "0"}
    first = await start_broker(tmp_path / "d", **settings)
    client = await Client.connect(first.port)
    await ready(client)
    joined = await join(client, group_instance_id="i")
    assert (await sync(client, joined)).error_code == 0
    client.send(joining(), 3)
    await asyncio.sleep(0.05)
    await first.stop()
    waiting = await answered(client, joining(), 3)
    assert waiting.error_code == E.NOT_COORDINATOR
    await client.close()
    second = await start_broker(tmp_path / "d", **settings)
    client = await Client.connect(second.port)
    (described,) = await describe(client, "g")
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"part")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await client.call(request, 4)).error_code == 0
    await client.close()
