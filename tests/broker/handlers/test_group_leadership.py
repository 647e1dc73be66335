"""What each API about groups answers where this node may not be the coordinator, or is not one yet."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server import Broker
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest
from storage.group import LogGroup
from tests.broker.handlers.offsets import TopicIds, commit, ready
from tests.broker.wire import Client

E = ErrorCode

JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)
SYNC = SyncGroupRequest(
    group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
)
REQUESTS = [
    (JOIN, 9),
    (SYNC, 5),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 5),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8),
    (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True),
        8,
    ),
    (OffsetDeleteRequest(group_id="g"), 0),
    (DescribeGroupsRequest(groups=["g"]), 6),
    (DeleteGroupsRequest(groups_names=["g"]), 2),
    (ListGroupsRequest(), 5),
]


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    found = await ready(client)
    assert await commit(client, 9, {("t", 0): 5}, found) == {("t", 0): 0}
    return found


async def errors(client: Client, ids: TopicIds) -> dict[str, ErrorCode]:
    """The error each of them is answered with."""
    found = {"OffsetCommit": ErrorCode((await commit(client, 9, {("t", 0): 6}, ids))["t", 0])}
    for request, version in REQUESTS:
        answer: Any = await client.call(request, version)
        for several in ("groups", "results"):
            if not getattr(answer, "error_code", 0) and getattr(answer, several, None):
                (answer,) = getattr(answer, several)
        found[type(request).__name__.removesuffix("Request")] = ErrorCode(answer.error_code)
    return found


async def test_without_its_lease_a_leader_sends_everybody_to_ask_again(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as uncertain:
        uncertain.setattr(LogGroup, "has_lease", False)
        found = await errors(client, ids)
    assert found.pop("ListGroups") is E.COORDINATOR_NOT_AVAILABLE
    assert len(found) == 9 and set(found.values()) == {E.NOT_COORDINATOR}, found
    assert broker.services.groups.store("g").state.offsets("g")["t", 0].offset == 5


async def test_while_it_is_loaded(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as loading:
        (coordinator,) = [each.coordinator for each in broker.services.groups._hosted.values()]
        loading.setattr(coordinator, "_refusal", E.COORDINATOR_LOAD_IN_PROGRESS)
        found = await errors(client, ids)
    assert found.pop("Heartbeat") is E.NONE, "its members need not know"
    assert len(found) == 9 and set(found.values()) == {E.COORDINATOR_LOAD_IN_PROGRESS}, found
    assert broker.services.groups.store("g").state.offsets("g")["t", 0].offset == 5
