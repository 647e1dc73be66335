"""The records of consumer groups (KIP-848) in `__consumer_offsets`, as Kafka's group coordinator writes them.

A key begins with its kind, a value with its version (`coordinator_records.py` puts them there). Kind 4, the
subscription metadata of Kafka 4.0 and earlier, is read by nobody any more and only deleted.

Source: the definitions in Kafka 4.4.0's group-coordinator.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.fields import (
    Struct,
    array,
    byte_string,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uuid,
)

CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_PARTITION_METADATA: Final = 4
CONSUMER_GROUP_MEMBER_METADATA: Final = 5
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 6
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 7
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 8
CONSUMER_GROUP_REGULAR_EXPRESSION: Final = 16


@message(api_key=CONSUMER_GROUP_METADATA, versions="0", flexible="none", kind="coordinator-key")
class ConsumerGroupMetadataKey(Struct):
    """The group."""

    group_id: str = string(versions="0")


@message(api_key=CONSUMER_GROUP_METADATA, versions="0", flexible="0+", kind="coordinator-value")
class ConsumerGroupMetadataValue(Struct):
    """The group's epoch, and the hash of the topics that it is subscribed to."""

    epoch: int = int32()
    metadata_hash: int = int64(tagged="0+", tag=0)


@message(api_key=CONSUMER_GROUP_PARTITION_METADATA, versions="0", flexible="none", kind="coordinator-key")
class ConsumerGroupPartitionMetadataKey(Struct):
    """The group."""

    group_id: str = string(versions="0")


@message(api_key=CONSUMER_GROUP_MEMBER_METADATA, versions="0", flexible="none", kind="coordinator-key")
class ConsumerGroupMemberMetadataKey(Struct):
    """The group and the member."""

    group_id: str = string(versions="0")
    member_id: str = string(versions="0")


@struct()
class ClassicProtocol(Struct):
    """One protocol of a member that speaks the classic one."""

    name: str = string()
    metadata: bytes = byte_string()


@struct()
class ClassicMemberMetadata(Struct):
    """A member that speaks the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(api_key=CONSUMER_GROUP_MEMBER_METADATA, versions="0", flexible="0+", kind="coordinator-value")
class ConsumerGroupMemberMetadataValue(Struct):
    """A member's identity and subscription."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct_field(
        ClassicMemberMetadata, default=None, nullable="0+", tagged="0+", tag=0
    )


@message(
    api_key=CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    versions="0",
    flexible="none",
    kind="coordinator-key",
)
class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    """The group."""

    group_id: str = string(versions="0")


@message(
    api_key=CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    versions="0",
    flexible="0+",
    kind="coordinator-value",
)
class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    """The epoch of the target assignment, and when it was made."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tagged="0+", tag=0)


@message(
    api_key=CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, versions="0", flexible="none", kind="coordinator-key"
)
class ConsumerGroupTargetAssignmentMemberKey(Struct):
    """The group and the member."""

    group_id: str = string(versions="0")
    member_id: str = string(versions="0")


@struct()
class TargetTopicPartition(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(
    api_key=CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, versions="0", flexible="0+", kind="coordinator-value"
)
class ConsumerGroupTargetAssignmentMemberValue(Struct):
    """The partitions that a member is to have."""

    topic_partitions: list[TargetTopicPartition] = array(TargetTopicPartition)


@message(
    api_key=CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, versions="0", flexible="none", kind="coordinator-key"
)
class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    """The group and the member."""

    group_id: str = string(versions="0")
    member_id: str = string(versions="0")


@struct()
class CurrentTopicPartitions(Struct):
    """Partitions of one topic, and the epoch at which the member got each."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, default=None, nullable="0+", tagged="0+", tag=0)


@message(
    api_key=CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, versions="0", flexible="0+", kind="coordinator-value"
)
class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    """The epochs of a member, the partitions that it has and those that it must give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


@message(api_key=CONSUMER_GROUP_REGULAR_EXPRESSION, versions="0", flexible="none", kind="coordinator-key")
class ConsumerGroupRegularExpressionKey(Struct):
    """The group and the regular expression."""

    group_id: str = string(versions="0")
    regular_expression: str = string(versions="0")


@message(api_key=CONSUMER_GROUP_REGULAR_EXPRESSION, versions="0", flexible="0+", kind="coordinator-value")
class ConsumerGroupRegularExpressionValue(Struct):
    """The topics that a regular expression matched, at which version of the metadata, and when."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
