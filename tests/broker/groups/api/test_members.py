"""The handlers of a group's members without a broker: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.groups.api.heartbeat import Heartbeat
from lockstep.broker.groups.api.join_group import JoinGroup
from lockstep.broker.groups.api.leave_group import LeaveGroup
from lockstep.broker.groups.api.sync_group import SyncGroup
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.fakes import client, header
from tests.broker.groups.api.fakes import FakeGroups
from tests.support.cases import each_case

E = ErrorCode


def joining(group_id: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


def syncing(group_id: str = "g", protocol_type: str | None = "consumer") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id, generation_id=1, member_id="m", protocol_type=protocol_type, protocol_name="range"
    )


CASES: list[tuple[Callable[[GroupCoordinators], RequestHandler], Callable[[str], Struct]]] = [
    (JoinGroup, joining),
    (SyncGroup, syncing),
    (Heartbeat, lambda group_id: HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")),
    (
        LeaveGroup,
        lambda group_id: LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="m")]),
    ),
]


@each_case(("handler", "request_for"), CASES)
def test_an_empty_group_id_is_invalid_and_not_looked_up(
    handler: Callable[[GroupCoordinators], RequestHandler], request_for: Callable[[str], Struct]
) -> None:
    groups = FakeGroups()
    answer = handler(groups()).handle(client(), header(5), request_for(""))
    assert groups.response(answer).error_code == E.INVALID_GROUP_ID
    assert groups.lookups == []


@each_case(("handler", "request_for"), CASES)
def test_the_coordinators_error_is_the_response(
    handler: Callable[[GroupCoordinators], RequestHandler], request_for: Callable[[str], Struct]
) -> None:
    groups = FakeGroups()
    groups.error = E.NOT_COORDINATOR
    answer = handler(groups()).handle(client(), header(5), request_for("g"))
    assert groups.response(answer).error_code == E.NOT_COORDINATOR
    assert groups.lookups == ["g"]


def test_a_member_joins_syncs_is_alive_and_leaves() -> None:
    groups = FakeGroups()
    first = groups.response(JoinGroup(groups()).handle(client(peer="10.0.0.5:4711"), header(9), joining()))
    assert (first.error_code, first.member_id[:7]) == (E.MEMBER_ID_REQUIRED, "client-")
    join = JoinGroup(groups()).handle(client(peer="10.0.0.5:4711"), header(9), joining("g", first.member_id))
    groups.world.loop.advance(1_000)
    joined = groups.response(join)
    assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, 1, first.member_id)
    described = groups.world.coordinator.describe("g")
    assert described is not None
    assert [each.client_host for each in described.members] == ["/10.0.0.5"]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id)
    sync = syncing()
    sync.member_id = first.member_id
    synced = groups.response(SyncGroup(groups()).handle(client(), header(5), sync))
    assert synced.error_code == E.NONE
    alive = groups.response(Heartbeat(groups()).handle(client(), header(4), beat))
    assert alive.error_code == E.NONE
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=first.member_id)])
    left = groups.response(LeaveGroup(groups()).handle(client(), header(5), leaving))
    assert [each.error_code for each in left.members] == [E.NONE]
    gone = groups.response(Heartbeat(groups()).handle(client(), header(4), beat))
    assert gone.error_code == E.UNKNOWN_MEMBER_ID


@each_case(("version", "error"), [(4, E.UNKNOWN_MEMBER_ID), (5, E.INCONSISTENT_GROUP_PROTOCOL)])
def test_from_version_5_on_a_sync_names_its_protocol(version: int, error: ErrorCode) -> None:
    groups = FakeGroups()
    answer = SyncGroup(groups()).handle(client(), header(version), syncing("g", None))
    assert groups.response(answer).error_code == error
