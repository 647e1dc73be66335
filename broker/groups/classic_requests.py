"""The parts of classic members' requests that need one group alone: checks, leaving, descriptions.

Owns: the checks of SyncGroup, the removal of a leaving member, the responses of LeaveGroup that wait for a
commit. Does not: find groups (`group_coordinator.py`), or know the rules of a rebalance
(`group_rebalancer.py`).
"""

from __future__ import annotations

import logging

from lockstep.broker.groups.classic_group import ClassicGroup, State
from lockstep.broker.groups.group_rebalancer import GroupRebalancer
from lockstep.broker.groups.group_responses import PendingGroupResponse
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from lockstep.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from lockstep.protocol.messages.sync_group import SyncGroupRequest

log = logging.getLogger("lockstep.groups")

BATCHED_LEAVE_MIN_VERSION = 3


class PendingLeaveResponse(PendingGroupResponse):
    """A LeaveGroup of the last members, which waits for the commit."""

    __slots__ = ("_waiting_response",)

    def __init__(self, response: LeaveGroupResponse, rebalancer: GroupRebalancer) -> None:
        super().__init__()
        self._waiting_response = response
        rebalancer.when_empty_committed(self._on_emptied)

    def _on_emptied(self, error: ErrorCode) -> None:
        response = self._waiting_response
        self.complete(response if error is ErrorCode.NONE else LeaveGroupResponse(error_code=error))


class PendingConsumerLeave(PendingResponse):
    """A LeaveGroup that removes members of a consumer group, which waits for the commit."""

    __slots__ = ("_api_version",)

    def __init__(self, api_version: int) -> None:
        super().__init__()
        self._api_version = api_version

    def finish(self, members: list[MemberResponse] | None, rejection: RequestError | None) -> None:
        """Completes with the result of each member, or with the rejection of all."""
        if rejection is not None or members is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR if rejection is None else rejection.error
            self.complete(LeaveGroupResponse(error_code=error))
        else:
            self.complete(leave_response(members, self._api_version))


def leave_response(members: list[MemberResponse], api_version: int) -> LeaveGroupResponse:
    """The results of all members, in the form of the request's version."""
    if api_version < BATCHED_LEAVE_MIN_VERSION:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


def described(group: ClassicGroup) -> DescribedGroup:
    """A group with members. Their protocol metadata is shown while it is Stable, as in Kafka."""
    protocol = group.protocol if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=b"" if protocol is None else each.metadata(protocol),
                member_assignment=each.assignment,
            )
            for each in group.members.values()
        ],
    )


def sync_request_error(rebalancer: GroupRebalancer | None, request: SyncGroupRequest) -> ErrorCode:
    """The error of a SyncGroup, or NONE."""
    if rebalancer is None or rebalancer.group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group = rebalancer.group
    error = group.validate(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.protocol is not None and request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def remove_leaving(rebalancer: GroupRebalancer | None, identity: MemberIdentity) -> MemberResponse:
    """Removes one member; the group rebalances when all of the request are removed."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    error = ErrorCode.UNKNOWN_MEMBER_ID
    if rebalancer is not None:
        group = rebalancer.group
        leaving_id: str | None = None
        if not member_id:
            leaving_id = None if instance_id is None else group.static_ids.get(instance_id)
            error = ErrorCode.UNKNOWN_MEMBER_ID if leaving_id is None else ErrorCode.NONE
        elif member_id in group.pending:
            leaving_id, error = member_id, ErrorCode.NONE
        else:
            error = group.validate(member_id, instance_id)
            leaving_id = member_id if error is ErrorCode.NONE else None
        if leaving_id is not None:
            log.debug("group %s: member %s leaves", rebalancer.name, printable(leaving_id))
            rebalancer.drop(leaving_id)
    return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
