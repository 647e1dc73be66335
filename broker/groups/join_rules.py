"""The rules of JoinGroup: a new member, a rejoining one, a static member that came back.

Owns: that decision, on a `LiveGroup`. Each function answers, or leaves it to the end of the join or to a
commit. Source: Kafka's GroupMetadataManager.classicGroupJoinToClassicGroup; KIP-394 (member ids first),
KIP-345 (static members), KIP-814 (a static leader that comes back keeps the assignment). Unlike Kafka
4.4.0, a static member that returns does not count twice against the group's maximum size (KAFKA-20601), the
protocols of its former member id are ignored, and the group rebalances if its subscription changed
(KAFKA-12759): decision 40.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Final

from lockstep.broker.groups.classic_group import ClassicGroup, Member, Protocols, State, bytes_of
from lockstep.broker.groups.group_context import GroupLimits
from lockstep.broker.groups.group_responses import JoinAnswer, Outbox, fenced_responses, join_error
from lockstep.broker.groups.live_group import NEW_MEMBER_JOIN_TIMEOUT_MS, LiveGroup
from lockstep.broker.groups.subscription import CONSUMER, topics_of
from lockstep.broker.process.log_text import printable
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.join_group import JoinGroupResponse

log = logging.getLogger("lockstep.groups")

MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9
NAME_CHARACTERS: Final = 8_000
"""Of a client's name at the beginning of a member id: an id must fit a string of the wire."""


@dataclass(slots=True)
class Joining:
    """One JoinGroup, its bytes copied, with whom to answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    api_version: int
    answer: JoinAnswer

    def new_member_id(self) -> str:
        """An id as Kafka makes them."""
        name = self.client_id if self.instance_id is None else self.instance_id
        return f"{name[:NAME_CHARACTERS]}-{uuid.uuid4()}"


def join(live: LiveGroup, joining: Joining, limits: GroupLimits, outbox: Outbox) -> None:
    """Take in one JoinGroup."""
    group, answer, member_id = live.group, joining.answer, joining.member_id
    replaced = group.replaced_by(member_id, joining.instance_id)
    came_back = None if member_id else replaced
    if not _has_room(group, joining, replaced, limits):
        if live.drop(member_id if replaced is None else replaced.member_id):
            live.membership_changed()
        else:  # perhaps an id that was handed out, and is waited for
            live.complete_join_if_all_there()
        answer.complete(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(joining.protocol_type, joining.protocols, came_back):
        answer.complete(join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
    elif came_back is not None:
        _replace(live, joining, came_back, joining.new_member_id(), outbox)
    elif not member_id:
        _join_new(live, joining)
    elif member_id in group.pending and joining.instance_id is None:
        _add(live, joining, member_id)
    else:
        error = group.validate(member_id, joining.instance_id)
        if error is not ErrorCode.NONE:
            answer.complete(join_error(error, member_id))
        else:
            _join_again(live, joining, group.members[member_id])


def _has_room(group: ClassicGroup, joining: Joining, member: Member | None, limits: GroupLimits) -> bool:
    """Returns whether the group has room for the joining client: in place of `member`, or as a further
    one."""
    if member is None and joining.member_id and joining.instance_id is not None:
        return True  # a static member id that is fenced or unknown: that error comes before the group's size
    added_bytes = bytes_of(joining.protocols)
    if group.protocol_bytes + added_bytes > limits.max_group_bytes:
        grows = member is None or added_bytes > member.protocol_bytes
        if grows:
            return False
    if group.state is State.PREPARING_REBALANCE:
        # Those that wait count: whoever joins again last is left out of a group that became too large.
        waits = member is not None and member.join_waiter is not None
        return waits or group.awaiting_join < limits.max_size
    if group.state is State.EMPTY:
        return True
    return member is not None or len(group.members) < limits.max_size


def _join_new(live: LiveGroup, joining: Joining) -> None:
    member_id = joining.new_member_id()
    if joining.instance_id is None and joining.api_version >= MEMBER_ID_REQUIRED_MIN_VERSION:
        live.group.hand_out(member_id)
        live.refresh_session(member_id, joining.session_timeout_ms)
        joining.answer.complete(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(live, joining, member_id)


def _add(live: LiveGroup, joining: Joining, member_id: str) -> None:
    member = Member(
        member_id,
        joining.instance_id,
        joining.client_id,
        joining.client_host,
        joining.session_timeout_ms,
        joining.rebalance_timeout_ms,
        joining.protocols,
    )
    member.is_new = True
    live.group.add(member, joining.protocol_type)
    live.await_join(member, joining.answer)
    live.member_added()
    live.refresh_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    live.prepare_or_complete()


def _update(live: LiveGroup, joining: Joining, member: Member) -> None:
    live.group.update(member, joining.protocols, joining.session_timeout_ms, joining.rebalance_timeout_ms)
    live.await_join(member, joining.answer)


def _join_again(live: LiveGroup, joining: Joining, member: Member) -> None:
    group = live.group
    unchanged = member.protocols == joining.protocols
    leads = group.leader == member.member_id
    if (group.state is State.COMPLETING_REBALANCE and unchanged) or (
        group.state is State.STABLE and unchanged and not leads
    ):
        # Its answer was lost, or it has nothing new to say: the present generation. A leader of a Stable
        # group joins again because something else changed, partitions for one.
        joining.answer.complete(live.generation_for(member))
        return
    _update(live, joining, member)
    live.prepare_or_complete()


def _replace(live: LiveGroup, joining: Joining, member: Member, member_id: str, outbox: Outbox) -> None:
    """A static member came back without its id: the old self is fenced, the part stays."""
    group = live.group
    old_id, old_leader = member.member_id, group.leader
    before = member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms
    subscribed = _subscribed_topics(group, member)
    join_fence, sync_fence = fenced_responses(member)
    outbox.put(group.take_join_waiter(member), join_fence)
    waiter, member.sync_waiter = member.sync_waiter, None
    outbox.put(waiter, sync_fence)
    live.end_session(old_id)
    group.rename(member, member_id)
    member.is_new = False  # Kafka's is another member: who waits to join is not silent
    live.refresh_session(member_id, joining.session_timeout_ms)
    _update(live, joining, member)
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may have been told the old id already: its assignment would miss the new one.
        live.prepare()
        return
    if group.state is not State.STABLE:
        live.complete_join_if_all_there()
        return
    if group.select_protocol() != group.protocol or _subscribed_topics(group, member) != subscribed:
        live.prepare()  # else no member would be assigned a topic that is new in its subscription
        return
    generation = group.generation

    def written(error: ErrorCode) -> None:
        current = group.members.get(member_id)
        if current is not member or group.state is not State.STABLE or group.generation != generation:
            return  # fenced, removed, or answered by the rebalance that runs or ran
        if error is not ErrorCode.NONE:
            log.warning(
                "group %s: static member %s was not written: %s", live.name, printable(old_id), error.name
            )
            outbox.put(group.take_join_waiter(member), join_error(error))
            live.end_session(member_id)
            group.rename(member, old_id)
            group.update(member, *before)
            live.refresh_session(old_id, member.session_timeout_ms)
            return
        live.answer_join(member, _came_back(live, member, joining.api_version, old_leader))

    live.write_members(written)


def _subscribed_topics(group: ClassicGroup, member: Member) -> set[str] | None:
    """A consumer's subscribed topics; None for other protocol types, and if its metadata cannot be parsed.

    The rest of the metadata is ignored: the owned partitions in it differ after most restarts.
    """
    return topics_of(member.metadata(group.protocol)) if group.protocol_type == CONSUMER else None


def _came_back(
    live: LiveGroup, member: Member, api_version: int, old_leader: str | None
) -> JoinGroupResponse:
    """The generation as it is. Before version 9 a leader is told the old leader's id, so that it follows."""
    response = live.generation_for(member)
    if api_version >= SKIP_ASSIGNMENT_MIN_VERSION:
        response.skip_assignment = bool(response.members)
    else:
        response.members = []
        response.leader = old_leader or ""
    return response
