"""What each API about groups answers where this node may not be the coordinator, or is not one yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.offset_delete import OffsetDeleteRequest
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from lockstep.storage.log_group import LogGroup
from lockstep.storage.read_index import ReadIndex
from tests.broker.conftest import StartBroker
from tests.broker.groups.api.offsets import TopicIds, commit, ready
from tests.broker.wire import Client

E = ErrorCode


def join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"what it can")],
    )


def sync(member_id: str, *parts: SyncGroupRequestAssignment) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=list(parts),
    )


REQUESTS = [
    (join(), 9),
    (sync("m"), 5),
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


async def test_a_delayed_leader_responds_as_with_a_lease(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has lapsed, and comes back with the next heartbeat: nobody is to look for another."""
    with monkeypatch.context() as uncertain:
        uncertain.setattr(LogGroup, "has_lease", False)
        found = await errors(client, ids)
    left = {name: error for name, error in found.items() if error is not E.NONE}
    assert left == {
        "JoinGroup": E.MEMBER_ID_REQUIRED,
        "SyncGroup": E.UNKNOWN_MEMBER_ID,
        "Heartbeat": E.UNKNOWN_MEMBER_ID,
    }, found
    assert broker.assembly.consumer_groups.store("g").state.offsets("g") == {}, (
        "committed, and deleted at last"
    )


async def test_a_member_is_kept_and_commits_while_the_leader_is_held_up(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything of a generation, sent at once: it is answered in order, and nobody joins again."""
    monkeypatch.setattr(LogGroup, "has_lease", False)
    told = await client.call(join(), 9)
    assert told.error_code == E.MEMBER_ID_REQUIRED
    member_id = told.member_id
    joined = await client.call(join(member_id), 9)
    assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, 1, member_id)
    assert joined.members[0].metadata == b"what it can"
    part = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all of it")
    wanted: list[tuple[Struct, int]] = [
        (sync(member_id, part), 5),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id), 4),
        (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)]), 5),
    ]
    for request, version in wanted:
        client.send(request, version)
    answers: list[Any] = [(await client.receive(request, version))[1] for request, version in wanted]
    assert [each.error_code for each in answers] == [E.NONE] * 3
    assert (answers[0].assignment, answers[2].members[0].error_code) == (b"all of it", E.NONE)


async def test_a_leader_that_may_be_deposed_has_all_clients_retry(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as uncertain:

        def deposed(read_index: ReadIndex) -> asyncio.Future[bool]:
            uncertain.setattr(LogGroup, "is_leader", False)
            uncertain.setattr(LogGroup, "leader_id", -1)
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            answer.set_result(False)
            return answer

        uncertain.setattr(LogGroup, "has_lease", False)
        uncertain.setattr(ReadIndex, "confirm_leadership", deposed)
        found = await errors(client, ids)
    assert found.pop("ListGroups") is E.COORDINATOR_NOT_AVAILABLE
    assert len(found) == 9 and set(found.values()) == {E.NOT_COORDINATOR}, found
    assert broker.assembly.consumer_groups.store("g").state.offsets("g")["t", 0].offset == 5


async def test_no_group_is_deleted_before_all_coordinators_are_certain(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first ones would be asked to go twice."""
    broker = await start_broker(lockstep_data_groups="2")
    client = await Client.connect(broker.port)
    await ready(client)
    groups = broker.assembly.consumer_groups
    names = {groups.store(f"g{n}").group.group_id: f"g{n}" for n in range(20)}
    deleted: list[str] = []
    real = GroupCoordinator.delete

    def delete(self: GroupCoordinator, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        deleted.append(group_id)
        real(self, group_id, done)

    monkeypatch.setattr(GroupCoordinator, "delete", delete)
    monkeypatch.setattr(LogGroup, "has_lease", property(lambda group: group.group_id != 2))
    answer = await client.call(DeleteGroupsRequest(groups_names=[names[1], names[2], names[1]]), 2)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        (names[1], E.GROUP_ID_NOT_FOUND),
        (names[2], E.GROUP_ID_NOT_FOUND),
    ]
    assert deleted == [names[1], names[2]]
    await client.close()


async def test_while_it_is_loaded(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as loading:
        (coordinator,) = [each.coordinator for each in broker.assembly.consumer_groups._shards.values()]
        loading.setattr(coordinator, "_not_serving_error", E.COORDINATOR_LOAD_IN_PROGRESS)
        found = await errors(client, ids)
    assert found.pop("Heartbeat") is E.NONE, "its members need not know"
    assert len(found) == 9 and set(found.values()) == {E.COORDINATOR_LOAD_IN_PROGRESS}, found
    assert broker.assembly.consumer_groups.store("g").state.offsets("g")["t", 0].offset == 5
