"""A consumer group as ConsumerGroupDescribe shows it.

Pure. Invariant: partitions of deleted topics, which have no name any more, are left out.
Source: Kafka's ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import ConsumerGroupMember, CurrentAssignment
from lockstep.broker.groups.consumer.subscribed_topics import TopicDescriber
from lockstep.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CONSUMER_MEMBER: Final = 1
"""The type of a member that speaks the consumer protocol; 0 is the classic one's."""


def describe(group: ConsumerGroup, topics: TopicDescriber, assignor: str) -> DescribedGroup:
    """The group's description. Args: assignor: the one that the group prefers now."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[_member(group, each, topics) for each in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: TopicDescriber) -> Member:
    current = group.current_of(member.member_id)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(_find_owned(current), topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=CONSUMER_MEMBER,
    )


def _find_owned(current: CurrentAssignment) -> dict[bytes, list[int]]:
    """All partitions that the member owns: assigned, or yet to be revoked."""
    found: dict[bytes, list[int]] = {}
    for partitions in (current.assigned, current.revoked):
        for topic_id, epochs in partitions.items():
            found.setdefault(topic_id, []).extend(epochs)
    return found


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicDescriber) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
            if (topic := topics.topic_by_id(topic_id)) is not None
        ]
    )


def described_topics(group: DescribedGroup) -> set[str]:
    """The names of all topics in a description: the client must be allowed to describe them."""
    return {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
