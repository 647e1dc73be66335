"""ConsumerGroupDescribe (69): the members of consumer groups, and their assignments (KIP-848).

Versions: 1 the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    struct_field,
    uuid,
)


@message(api_key=69, versions="0-1", flexible="0+", kind="request")
class ConsumerGroupDescribeRequest(Struct):
    """Groups to describe."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@struct()
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct()
class Assignment(Struct):
    """A member's partitions."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct()
class Member(Struct):
    """One member."""

    member_id: str = string()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(default=None, nullable="0+")
    assignment: Assignment = struct_field(Assignment)
    target_assignment: Assignment = struct_field(Assignment)
    member_type: int = int8(default=-1, versions="1+", ignorable=True)


@struct()
class DescribedGroup(Struct):
    """One group: state, epochs, assignor, members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@message(api_key=69, versions="0-1", flexible="0+", kind="response")
class ConsumerGroupDescribeResponse(Struct):
    """A description of each requested group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
