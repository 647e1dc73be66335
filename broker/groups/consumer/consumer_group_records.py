"""The records of a consumer group in `__consumer_offsets`, and their content as objects.

Owns: the frozen objects that a record comes to (`ConsumerGroupMember`, `CurrentAssignment`, `ResolvedRegex`,
`TargetMetadata`) and the way to and from keys and values. Invariants: bytes are those of Kafka 4.4.0's group
coordinator, version 0 of each record; topics and partitions are written in order, so that equal objects have
equal bytes. Does not: know a group (`consumer_group.py`). Source: Kafka's GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from lockstep.broker.groups.group_records import Record, UnknownGroupRecord
from lockstep.protocol.compiler import decode
from lockstep.protocol.consumer_group_records import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartition,
)
from lockstep.protocol.coordinator_records import key_bytes, value_bytes
from lockstep.protocol.fields import Struct
from lockstep.protocol.primitives import MalformedMessage

KINDS: Final = frozenset(
    {
        CONSUMER_GROUP_METADATA,
        CONSUMER_GROUP_PARTITION_METADATA,
        CONSUMER_GROUP_MEMBER_METADATA,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        CONSUMER_GROUP_REGULAR_EXPRESSION,
    }
)
"""The kinds of a consumer group's records."""
MEMBER_KINDS: Final = frozenset(
    {
        CONSUMER_GROUP_MEMBER_METADATA,
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    }
)
VALUE_VERSION: Final = 0

Partitions = Mapping[bytes, tuple[int, ...]]
"""Topic id -> its partitions, in order."""
EpochsByPartition = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which the member got it."""
NO_PARTITIONS: Final[Partitions] = {}
NO_EPOCHS: Final[EpochsByPartition] = {}

LEFT_STATIC_EPOCH: Final = -2
"""The epoch with which a static member leaves, and which it has until it comes back."""


class MemberState(IntEnum):
    """The state of a member's reconciliation; values are those of the record."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member's identity and subscription."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The subscribed names, in order, each once."""
    regex: str = ""
    """The subscribed regular expression; empty for none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """A member's epochs, the partitions that it has and those that it must give up."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: EpochsByPartition = field(default_factory=dict)
    revoked: EpochsByPartition = field(default_factory=dict)
    """Pending revocation: the member may still use them."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Returns whether the member has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, at which version of the metadata, and when."""

    topics: tuple[str, ...] = ()
    version: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetMetadata:
    """The epoch of the target assignment, and when it was made."""

    assignment_epoch: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, and the hash of the topics that it is subscribed to."""

    group_epoch: int = 0
    metadata_hash: int = 0


# --- to records -------------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, epoch: GroupEpoch) -> Record:
    """The group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch.group_epoch, metadata_hash=epoch.metadata_hash)
    return _record(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerGroupMember) -> Record:
    """A member's identity and subscription."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )
    return _record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_metadata_record(group_id: str, metadata: TargetMetadata) -> Record:
    """The epoch and time of the target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=metadata.assignment_epoch, assignment_timestamp=metadata.time_ms
    )
    return _record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """The partitions that a member is to have."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartition(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in sorted(partitions.items())
        ]
    )
    return _record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> Record:
    """A member's epochs and partitions."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=int(current.state),
        assigned_partitions=_with_epochs(current.assigned),
        partitions_pending_revocation=_with_epochs(current.revoked),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return _record(key, value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    """The topics that a regular expression matched."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.time_ms
    )
    return _record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> Record:
    """No member is subscribed to the regular expression any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return key_bytes(key), None


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """The member is gone: its current and target assignment first, as in Kafka."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        (key_bytes(ConsumerGroupCurrentMemberAssignmentKey(**names)), None),
        (key_bytes(ConsumerGroupTargetAssignmentMemberKey(**names)), None),
        (key_bytes(ConsumerGroupMemberMetadataKey(**names)), None),
    ]


def _record(key: Struct, value: Struct) -> Record:
    return key_bytes(key), value_bytes(value, VALUE_VERSION)


def _with_epochs(partitions: EpochsByPartition) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[each] for each in sorted(epochs)],
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


# --- from records -----------------------------------------------------------------------------------------


def read_key(kind: int, key: bytes) -> tuple[str, str]:
    """The group's id, and the member's id or the regular expression ("" where there is none).

    Raises MalformedMessage.
    """
    if kind in MEMBER_KINDS:
        member_key = decode(ConsumerGroupMemberMetadataKey, 0, key, 2)
        return member_key.group_id, member_key.member_id
    if kind == CONSUMER_GROUP_REGULAR_EXPRESSION:
        regex_key = decode(ConsumerGroupRegularExpressionKey, 0, key, 2)
        return regex_key.group_id, regex_key.regular_expression
    return decode(ConsumerGroupMetadataKey, 0, key, 2).group_id, ""


def read_group_epoch(value: bytes) -> GroupEpoch:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupMetadataValue, value)
    return GroupEpoch(read.epoch, read.metadata_hash)


def read_member(member_id: str, value: bytes) -> ConsumerGroupMember:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupMemberMetadataValue, value)
    return ConsumerGroupMember(
        member_id,
        read.instance_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        tuple(sorted(set(read.subscribed_topic_names))),
        read.subscribed_topic_regex or "",
        read.rebalance_timeout_ms,
        read.server_assignor,
    )


def read_target_metadata(value: bytes) -> TargetMetadata:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetMetadata(read.assignment_epoch, read.assignment_timestamp)


def read_target(value: bytes) -> Partitions:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupTargetAssignmentMemberValue, value)
    return {each.topic_id: tuple(each.partitions) for each in read.topic_partitions}


def read_current(value: bytes) -> CurrentAssignment:
    """A record without the partitions' epochs, of an older Kafka, counts as if the member got all of them at
    its present epoch. Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupCurrentMemberAssignmentValue, value)
    try:
        state = MemberState(read.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        read.member_epoch,
        read.previous_member_epoch,
        state,
        _read_epochs(read.assigned_partitions, read.member_epoch),
        _read_epochs(read.partitions_pending_revocation, read.member_epoch),
    )


def read_regex(value: bytes) -> ResolvedRegex:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = _decode_value(ConsumerGroupRegularExpressionValue, value)
    return ResolvedRegex(tuple(sorted(set(read.topics))), read.version, read.timestamp)


def _read_epochs(topics: list[CurrentTopicPartitions], member_epoch: int) -> EpochsByPartition:
    return {
        each.topic_id: dict(
            zip(each.partitions, each.assignment_epochs, strict=True)
            if each.assignment_epochs and len(each.assignment_epochs) == len(each.partitions)
            else dict.fromkeys(each.partitions, member_epoch)
        )
        for each in topics
    }


T = TypeVar("T", bound=Struct)


def _decode_value(cls: type[T], value: bytes) -> T:
    if len(value) < 2:
        raise MalformedMessage("a value without a version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if version != VALUE_VERSION:
        raise UnknownGroupRecord(f"a value of version {version}; known up to {VALUE_VERSION}")
    return decode(cls, version, value, 2)
