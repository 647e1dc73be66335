"""The rules of JoinGroup: a new member, a rejoining one, a static member that returned.

Owns: that decision, on a `GroupRebalancer`. Each function completes the pending response, or leaves that to
the end of the join or to a commit. Source: Kafka's GroupMetadataManager.classicGroupJoinToClassicGroup;
KIP-394 (member ids first), KIP-345 (static members), KIP-814 (a static leader that returns keeps the
assignment). Unlike Kafka 4.4.0, a static member that returns does not count twice against the group's maximum
size (KAFKA-20601), the protocols of its former member id are ignored, and the group rebalances if its
subscription changed (KAFKA-12759): decision 40.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Final

from lockstep.broker.groups.classic_group import ClassicGroup, Member, Protocols, State, bytes_of
from lockstep.broker.groups.group_context import GroupLimits
from lockstep.broker.groups.group_rebalancer import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupRebalancer
from lockstep.broker.groups.group_responses import (
    PendingJoinResponse,
    ResponseQueue,
    fenced_responses,
    join_error,
)
from lockstep.broker.groups.subscription import CONSUMER, topics_of
from lockstep.broker.process.log_text import printable
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.join_group import JoinGroupResponse

log = logging.getLogger("lockstep.groups")

MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9
NAME_CHARACTERS: Final = 8_000
"""The longest client name at the beginning of a member id: an id must fit a string of the wire."""


@dataclass(slots=True)
class JoinRequest:
    """One JoinGroup request, its bytes copied, with its pending response."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    api_version: int
    response: PendingJoinResponse

    def new_member_id(self) -> str:
        """An id as Kafka makes them."""
        name = self.client_id if self.instance_id is None else self.instance_id
        return f"{name[:NAME_CHARACTERS]}-{uuid.uuid4()}"


def join(
    rebalancer: GroupRebalancer, request: JoinRequest, limits: GroupLimits, response_queue: ResponseQueue
) -> None:
    """Handles one JoinGroup."""
    group, response, member_id = rebalancer.group, request.response, request.member_id
    replaced = group.find_replaced(member_id, request.instance_id)
    returning = None if member_id else replaced
    if not _has_room(group, request, replaced, limits):
        if rebalancer.drop(member_id if replaced is None else replaced.member_id):
            rebalancer.rebalance_after_removal()
        else:  # perhaps a pending member id
            rebalancer.try_complete_join()
        response.complete(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(request.protocol_type, request.protocols, returning):
        response.complete(join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
    elif returning is not None:
        _replace(rebalancer, request, returning, request.new_member_id(), response_queue)
    elif not member_id:
        _join_new(rebalancer, request)
    elif member_id in group.pending and request.instance_id is None:
        _add(rebalancer, request, member_id)
    else:
        error = group.validate(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            response.complete(join_error(error, member_id))
        else:
            _join_again(rebalancer, request, group.members[member_id])


def _has_room(group: ClassicGroup, request: JoinRequest, member: Member | None, limits: GroupLimits) -> bool:
    """Returns whether the group has room for the client: in place of `member`, or as a further one."""
    if member is None and request.member_id and request.instance_id is not None:
        return True  # a static member id that is fenced or unknown: that error comes before the group's size
    added_bytes = bytes_of(request.protocols)
    if group.protocol_bytes + added_bytes > limits.max_group_bytes:
        grows = member is None or added_bytes > member.protocol_bytes
        if grows:
            return False
    if group.state is State.PREPARING_REBALANCE:
        # Members that await the join count: the last to rejoin are rejected by a group that became too large.
        is_waiting = member is not None and member.join_waiter is not None
        return is_waiting or group.awaiting_join < limits.max_size
    if group.state is State.EMPTY:
        return True
    return member is not None or len(group.members) < limits.max_size


def _join_new(rebalancer: GroupRebalancer, request: JoinRequest) -> None:
    member_id = request.new_member_id()
    if request.instance_id is None and request.api_version >= MEMBER_ID_REQUIRED_MIN_VERSION:
        rebalancer.group.add_pending_member(member_id)
        rebalancer.refresh_session(member_id, request.session_timeout_ms)
        request.response.complete(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(rebalancer, request, member_id)


def _add(rebalancer: GroupRebalancer, request: JoinRequest, member_id: str) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    rebalancer.group.add(member, request.protocol_type)
    rebalancer.await_join(member, request.response)
    rebalancer.member_added()
    rebalancer.refresh_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalancer.prepare_rebalance_or_complete_join()


def _update(rebalancer: GroupRebalancer, request: JoinRequest, member: Member) -> None:
    rebalancer.group.update(
        member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms
    )
    rebalancer.await_join(member, request.response)


def _join_again(rebalancer: GroupRebalancer, request: JoinRequest, member: Member) -> None:
    group = rebalancer.group
    unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    if (group.state is State.COMPLETING_REBALANCE and unchanged) or (
        group.state is State.STABLE and unchanged and not is_leader
    ):
        # Its response was lost, or it has nothing new to report: the present generation. A leader of a Stable
        # group joins again because something else changed, partitions for one.
        request.response.complete(rebalancer.generation_response(member))
        return
    _update(rebalancer, request, member)
    rebalancer.prepare_rebalance_or_complete_join()


def _replace(
    rebalancer: GroupRebalancer,
    request: JoinRequest,
    member: Member,
    member_id: str,
    response_queue: ResponseQueue,
) -> None:
    """A static member returned without its id: its old member id is fenced, its assignment stays."""
    group = rebalancer.group
    old_id, old_leader = member.member_id, group.leader
    before = member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms
    subscribed = _subscribed_topics(group, member)
    join_fence, sync_fence = fenced_responses(member)
    response_queue.put(group.take_join_waiter(member), join_fence)
    waiter, member.sync_waiter = member.sync_waiter, None
    response_queue.put(waiter, sync_fence)
    rebalancer.end_session(old_id)
    group.rename(member, member_id)
    member.is_new = False  # in Kafka it is another member: one that awaits the join has rejoined
    rebalancer.refresh_session(member_id, request.session_timeout_ms)
    _update(rebalancer, request, member)
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may have received the old id already: the new one would be missing in its assignment.
        rebalancer.prepare_rebalance()
        return
    if group.state is not State.STABLE:
        rebalancer.try_complete_join()
        return
    if group.select_protocol() != group.protocol or _subscribed_topics(group, member) != subscribed:
        # else no member would be assigned a topic that is new in its subscription
        rebalancer.prepare_rebalance()
        return
    generation = group.generation

    def written(error: ErrorCode) -> None:
        current = group.members.get(member_id)
        if current is not member or group.state is not State.STABLE or group.generation != generation:
            return  # fenced, removed, or responded to by a rebalance meanwhile
        if error is not ErrorCode.NONE:
            log.warning(
                "group %s: static member %s was not written: %s",
                rebalancer.name,
                printable(old_id),
                error.name,
            )
            response_queue.put(group.take_join_waiter(member), join_error(error))
            rebalancer.end_session(member_id)
            group.rename(member, old_id)
            group.update(member, *before)
            rebalancer.refresh_session(old_id, member.session_timeout_ms)
            return
        rebalancer.respond_to_join(
            member, _returning_response(rebalancer, member, request.api_version, old_leader)
        )

    rebalancer.write_members(written)


def _subscribed_topics(group: ClassicGroup, member: Member) -> set[str] | None:
    """A consumer's subscribed topics; None for other protocol types, and if its metadata cannot be parsed.

    The rest of the metadata is ignored: the owned partitions in it differ after most restarts.
    """
    return topics_of(member.metadata(group.protocol)) if group.protocol_type == CONSUMER else None


def _returning_response(
    rebalancer: GroupRebalancer, member: Member, api_version: int, old_leader: str | None
) -> JoinGroupResponse:
    """Returns the present generation. Before version 9 a leader receives the old leader's id, so that it acts
    as a follower."""
    response = rebalancer.generation_response(member)
    if api_version >= SKIP_ASSIGNMENT_MIN_VERSION:
        response.skip_assignment = bool(response.members)
    else:
        response.members = []
        response.leader = old_leader or ""
    return response
