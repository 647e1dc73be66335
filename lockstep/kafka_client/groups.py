"""Consumer groups seen from outside: their members, their offsets, and resets of these.

Owns: what `lockstep groups` needs of the group APIs, on top of a `Client`. Offsets are changed only of groups
without members; the broker rejects the rest. Does not: join a group. Raises BrokerError throughout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.kafka_client.client import LATEST, Client
from lockstep.kafka_client.cluster_connections import NO_LEADER
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, only
from lockstep.protocol.client_errors import Unsupported
from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lockstep.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lockstep.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lockstep.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

TopicPartition = tuple[str, int]
NAMES_UNTIL: Final = 9
"""OffsetCommit and OffsetFetch name topics up to this version, and give their ids from the next."""
BATCHED_MIN_VERSION: Final = 8
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
"""The state of a group that is not there."""
NO_SUCH_GROUP: Final = "there is no such group; `lockstep groups list` shows those there are"


@dataclass(frozen=True)
class GroupSummary:
    """One line of the list."""

    group: str
    protocol_type: str
    state: str


@dataclass(frozen=True)
class GroupMember:
    """One member; `owned` is None where the protocol is not a consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    owned: tuple[TopicPartition, ...] | None


@dataclass(frozen=True)
class Group:
    """One group as its coordinator describes it; an unknown one has the state "Dead"."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


async def list_groups(client: Client) -> list[GroupSummary]:
    """Every group of every broker, by name; waits a few seconds where a node has just gone."""

    async def attempt() -> list[GroupSummary]:
        found = {}
        for connection in await client.brokers():
            response = await connection.call(ListGroupsRequest(), ListGroupsResponse)
            if response.error_code:
                reason = NO_LEADER.get(response.error_code)
                raise BrokerError(response.error_code, "listing groups", reason)
            for each in response.groups:
                found[each.group_id] = GroupSummary(each.group_id, each.protocol_type, each.group_state)
        return [found[name] for name in sorted(found)]

    return await client.retry_while(attempt, LEADERSHIP_ERRORS)


async def describe_group(client: Client, group: str) -> Group:
    """State and members of a group of either protocol."""
    connection = await client.coordinator(group)
    response = await connection.call(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
    found = only(response.groups, f"group {group}")
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
        not found.error_code and found.group_state == DEAD
    ):
        return await _describe_consumer_group(connection, group)
    if found.error_code:
        raise BrokerError(found.error_code, f"group {group}", found.error_message)
    members = tuple(_member(each, found.protocol_type) for each in found.members)
    return Group(group, found.group_state, found.protocol_type, found.protocol_data, members)


async def _describe_consumer_group(connection: BrokerConnection, group: str) -> Group:
    """A group that is none of the classic protocol: DescribeGroups has no others."""
    unknown = Group(group, DEAD, "", "", ())
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    try:
        response = await connection.call(request, ConsumerGroupDescribeResponse)
    except Unsupported:
        return unknown
    found = only(response.groups, f"group {group}")
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return unknown
    if found.error_code:
        raise BrokerError(found.error_code, f"group {group}", found.error_message)
    members = tuple(map(_consumer_group_member, found.members))
    return Group(group, found.group_state, CONSUMER, found.assignor_name, members)


async def committed_offsets(client: Client, group: str) -> dict[TopicPartition, int]:
    """The group's committed offsets, sorted by topic and partition."""
    connection = await client.coordinator(group)
    if connection.version_of(OffsetFetchRequest, NAMES_UNTIL) < BATCHED_MIN_VERSION:
        request = OffsetFetchRequest(group_id=group, topics=None)
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    response = await connection.call(request, OffsetFetchResponse, newest=NAMES_UNTIL)
    topics = response.groups[0].topics if response.groups else response.topics
    error = response.groups[0].error_code if response.groups else response.error_code
    if error:
        raise BrokerError(error, f"group {group}")
    offsets = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }
    return dict(sorted(offsets.items()))


async def commit_offsets(
    client: Client,
    group: str,
    offsets: Mapping[TopicPartition, int],
    generation: int = -1,
    member_id: str = "",
) -> None:
    """Set offsets of a group: as a member of it, or from outside while it has none.

    BrokerError names the first partition rejected.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        by_topic.setdefault(topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )
    connection = await client.coordinator(group)
    response = await connection.call(request, OffsetCommitResponse, newest=NAMES_UNTIL)
    for result in response.topics:
        for each in result.partitions:
            if each.error_code == ErrorCode.UNKNOWN_MEMBER_ID and not member_id:
                raise BrokerError(each.error_code, f"group {group}", "it has members; stop them first")
            if each.error_code:
                raise BrokerError(
                    each.error_code, f"group {group}, {result.name}, partition {each.partition_index}"
                )


async def delete_group(client: Client, group: str) -> None:
    """Delete a group without members, and its offsets."""
    connection = await client.coordinator(group)
    response = await connection.call(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
    result = only(response.results, f"group {group}")
    if result.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise BrokerError(result.error_code, f"group {group}", "it has members; stop them first")
    if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise BrokerError(result.error_code, f"group {group}", NO_SUCH_GROUP)
    if result.error_code:
        raise BrokerError(result.error_code, f"group {group}")


async def end_offsets(
    client: Client, topic_partitions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The end offset of each partition; partitions of deleted topics are left out."""
    found: dict[TopicPartition, int] = {}
    for name in dict.fromkeys(topic for topic, _ in topic_partitions):
        try:
            topic = await client.topic(name)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        there = {partition.index for partition in topic.partitions}
        requested = [index for of_topic, index in topic_partitions if of_topic == name and index in there]
        ends = await client.offsets(topic, requested, LATEST)
        found.update({(name, index): end for index, end in ends.items()})
    return found


def _member(found: DescribedGroupMember, protocol_type: str) -> GroupMember:
    owned = owned_partitions(bytes(found.member_assignment)) if protocol_type == CONSUMER else None
    return GroupMember(found.member_id, found.group_instance_id, found.client_id, found.client_host, owned)


def _consumer_group_member(found: Member) -> GroupMember:
    owned = sorted(
        (topic.topic_name, index) for topic in found.assignment.topic_partitions for index in topic.partitions
    )
    return GroupMember(found.member_id, found.instance_id, found.client_id, found.client_host, tuple(owned))


def owned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions of a consumer's assignment (version, topics with partitions); None if it is not one.

    Source: Kafka's ConsumerProtocolAssignment. Members write it: it may be anything.
    """
    if not assignment:
        return ()
    topic_partitions: list[TopicPartition] = []
    try:
        (topics,) = struct.unpack_from(">i", assignment, 2)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, position)
            if length < 0:
                return None
            name = assignment[position + 2 : position + 2 + length].decode()
            position += 2 + length
            (count,) = struct.unpack_from(">i", assignment, position)
            topic_partitions += [
                (name, index) for index in struct.unpack_from(f">{count}i", assignment, position + 4)
            ]
            position += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(sorted(topic_partitions))
