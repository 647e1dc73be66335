"""The membership of a consumer group: the member of a request, members that leave or are replaced.

Pure. Owns: finding the member of a heartbeat, the check of its epoch and the retry rule, static members (an
instance id whose member has left with epoch -2 may be taken over), and leaving. Does not: look at
subscriptions or assignments (`heartbeat.py`). Source: Kafka's GroupMetadataManager
(getOrMaybeSubscribe..., consumerGroupLeave, consumerGroupFenceMembers).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup, find_remaining, subscribed_names
from lockstep.broker.groups.consumer.consumer_group_records import (
    LEFT_STATIC_EPOCH,
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    TargetMetadata,
    current_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    regex_tombstone,
    target_metadata_record,
    target_record,
)
from lockstep.broker.groups.consumer.current_assignment_builder import Owned
from lockstep.broker.groups.consumer.request_checks import JOIN_EPOCH
from lockstep.broker.groups.consumer.subscribed_topics import TopicDescriber, metadata_hash
from lockstep.broker.groups.group_records import Record
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


class FoundMember(NamedTuple):
    """The member of a request."""

    member: ConsumerGroupMember
    current: CurrentAssignment
    replaced_id: str | None = None
    """The static member that it replaces."""
    records: tuple[Record, ...] = ()
    """The records of the replacement."""
    is_new: bool = False
    """True where no record of it is written yet."""


def find_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, member_epoch: int, owned: Owned | None
) -> FoundMember:
    """Finds, or for a join makes, the member of a heartbeat. Raises RequestError."""
    if instance_id is not None:
        return _find_static(group, member_id, instance_id, member_epoch, owned)
    member = group.members.get(member_id)
    if member is None:
        if member_epoch != JOIN_EPOCH:
            raise unknown_member(group, member_id)
        return FoundMember(ConsumerGroupMember(member_id), CurrentAssignment(), is_new=True)
    current = group.current_of(member_id)
    check_epoch(current, member_epoch, owned)
    return FoundMember(member, current)


def _find_static(
    group: ConsumerGroup, member_id: str, instance_id: str, member_epoch: int, owned: Owned | None
) -> FoundMember:
    present = group.static_member(instance_id)
    if member_epoch != JOIN_EPOCH:
        present = require_static(present, member_id, instance_id)
        current = group.current_of(member_id)
        check_epoch(current, member_epoch, owned)
        return FoundMember(present, current)
    if present is None:
        member = group.members.get(member_id)
        if member is not None:
            return FoundMember(member, group.current_of(member_id))
        return FoundMember(ConsumerGroupMember(member_id), CurrentAssignment(), is_new=True)
    left = group.current_of(present.member_id)
    if left.member_epoch != LEFT_STATIC_EPOCH:
        raise RequestError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {present.member_id} member.",
        )
    member = replace(present, member_id=member_id)
    current = replace(left, member_epoch=0, previous_member_epoch=0)
    records = (
        *member_tombstones(group.group_id, present.member_id),
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, group.target_of(present.member_id)),
        current_record(group.group_id, member_id, current),
    )
    return FoundMember(member, current, present.member_id, records)


def check_epoch(current: CurrentAssignment, received: int, owned: Owned | None) -> None:
    """Checks the epoch of a heartbeat: the present one; or the previous one, because the member may have
    missed a response, if it reports no partition that is not assigned to it. Raises RequestError."""
    epoch = current.member_epoch
    if received in (JOIN_EPOCH, epoch):
        return
    if received > epoch:
        relation = "greater"
    elif received == current.previous_member_epoch and _is_subset(owned, current):
        return
    else:
        relation = "smaller"
    raise RequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known by the "
        f"group coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Owned | None, current: CurrentAssignment) -> bool:
    return owned is not None and all(
        topic_id in current.assigned and all(each in current.assigned[topic_id] for each in partitions)
        for topic_id, partitions in owned.items()
    )


def require_static(
    member: ConsumerGroupMember | None, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    """The static member, if this member id still has its instance id. Raises RequestError."""
    if member is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RequestError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def unknown_member(group: ConsumerGroup, member_id: str) -> RequestError:
    """The rejection of a member that the group does not have."""
    text = f"Member {member_id} is not a member of group {group.group_id}."
    return RequestError(ErrorCode.UNKNOWN_MEMBER_ID, text)


# --- members that leave -----------------------------------------------------------------------------------


def leave(
    group: ConsumerGroup, member_id: str, instance_id: str | None, member_epoch: int, topics: TopicDescriber
) -> list[Record]:
    """The records of a member that leaves, for good or (a static one, epoch -2) to come back. Raises
    RequestError."""
    if instance_id is None:
        if member_id not in group.members:
            raise unknown_member(group, member_id)
    else:
        require_static(group.static_member(instance_id), member_id, instance_id)
        if member_epoch == LEFT_STATIC_EPOCH:
            left = replace(group.current_of(member_id), member_epoch=LEFT_STATIC_EPOCH, revoked={})
            return [current_record(group.group_id, member_id, left)]
    return fence(group, [member_id], topics)


def fence(group: ConsumerGroup, member_ids: Collection[str], topics: TopicDescriber) -> list[Record]:
    """The records that remove members: the group epoch rises by one, and of the last members the assignment
    epoch with it."""
    removed = {each: group.members[each] for each in member_ids}
    records: list[Record] = []
    for member_id in removed:
        records += member_tombstones(group.group_id, member_id)
    names = find_remaining(group.topic_members, chain.from_iterable(each.topics for each in removed.values()))
    regexes = find_remaining(group.regex_members, [each.regex for each in removed.values()])
    records += [regex_tombstone(group.group_id, each) for each in group.regex_members if each not in regexes]
    names = subscribed_names(names, regexes, group.regexes)
    epoch = GroupEpoch(group.group_epoch + 1, metadata_hash(names, topics))
    records.append(group_epoch_record(group.group_id, epoch))
    if len(removed) == len(group.members):
        # Nothing to assign without members: the next join does not wait for the assignment interval.
        records.append(target_metadata_record(group.group_id, TargetMetadata(epoch.group_epoch)))
    return records
