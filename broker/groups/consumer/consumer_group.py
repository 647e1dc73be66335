"""One consumer group, replayed from its committed records: members, assignments, epochs.

Owns: `ConsumerGroup`, changed by `apply` alone, which replays one record. Invariants: everything here follows
from `records`, the newest value of each key; a partition has at most one owner; a member has a current
assignment, perhaps the default one. Does not: decide (`heartbeat.py` and its neighbours do), or know time.
Source: Kafka's ConsumerGroup, ModernGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar

from lockstep.broker.groups.classic_group import MEMBER_BYTES, group_bytes, text_bytes
from lockstep.broker.groups.consumer.consumer_group_records import (
    NO_PARTITIONS,
    ConsumerGroupMember,
    CurrentAssignment,
    EpochsByPartition,
    GroupEpoch,
    Partitions,
    ResolvedRegex,
    TargetMetadata,
    read_current,
    read_group_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_metadata,
)
from lockstep.broker.groups.group_records import Record
from lockstep.protocol.consumer_group_records import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
)

V = TypeVar("V")
NEW_MEMBER: Final = CurrentAssignment()
RECORD_COPIES: Final = 3
"""About how often a record's content is in memory: as bytes, as objects, and in the indexes over them."""
NAME_BYTES: Final = 100
"""Memory of a subscribed name without its characters: a text and the references of a member and the group."""


class ConsumerGroupState(Enum):
    """A group's state; values are Kafka's names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Mappings that it hands out are not to be changed."""

    __slots__ = (
        "assignors",
        "current",
        "epoch",
        "group_id",
        "members",
        "memory_bytes",
        "owners",
        "records",
        "regex_members",
        "regexes",
        "static_ids",
        "target",
        "target_metadata",
        "topic_members",
        "unreconciled",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = GroupEpoch()
        self.target_metadata = TargetMetadata()
        self.members: dict[str, ConsumerGroupMember] = {}
        self.current: dict[str, CurrentAssignment] = {}
        """By member id; a member without one is new (`current_of`)."""
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_ids: dict[str, str] = {}
        """Instance id -> member id."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Topic id -> partition -> its owner: the member that has it assigned, or has yet to revoke it."""
        self.topic_members: dict[str, int] = {}
        """Subscribed name -> the number of members that subscribe to it by name."""
        self.regex_members: dict[str, int] = {}
        """Subscribed regular expression -> the number of members that subscribe to it."""
        self.assignors: dict[str, int] = {}
        """Requested assignor -> the number of members that request it."""
        self.unreconciled: set[str] = set()
        """Members whose current assignment is not reconciled with the target."""
        self.records: dict[bytes, bytes] = {}
        """The newest value of each key."""
        self.memory_bytes = group_bytes(group_id)

    # --- what is committed --------------------------------------------------------------------------------

    @property
    def group_epoch(self) -> int:
        return self.epoch.group_epoch

    @property
    def assignment_epoch(self) -> int:
        return self.target_metadata.assignment_epoch

    @property
    def state(self) -> ConsumerGroupState:
        """Returns the state, as Kafka names it."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self.unreconciled else ConsumerGroupState.STABLE

    def current_of(self, member_id: str) -> CurrentAssignment:
        """Returns a member's epochs and partitions."""
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> Partitions:
        """Returns the partitions that a member is to have."""
        return self.target.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Returns the member with this instance id."""
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Returns whether a member has the partition assigned, or has yet to revoke it."""
        return partition in self.owners.get(topic_id, ())

    def tombstones(self) -> list[Record]:
        """Returns the tombstones that delete the group, the group's own last."""
        kinds = sorted(self.records, key=lambda key: (key[:2] == _GROUP_KEY, key[:2] == _MEMBER_KEY))
        return [(key, None) for key in kinds]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroup) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    # --- replay -------------------------------------------------------------------------------------------

    def apply(self, kind: int, key: bytes, name: str, value: bytes | None) -> None:
        """Replays one record of this group; `name` is the member's id or the regular expression of its key.

        Raises MalformedMessage, UnknownGroupRecord; then nothing has changed.
        """
        if kind == CONSUMER_GROUP_METADATA:
            self.epoch = GroupEpoch() if value is None else read_group_epoch(value)
        elif kind == CONSUMER_GROUP_MEMBER_METADATA:
            self._apply_member(name, None if value is None else read_member(name, value))
        elif kind == CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
            self._apply_target_metadata(TargetMetadata() if value is None else read_target_metadata(value))
        elif kind == CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
            _put(self.target, name, None if value is None else read_target(value))
        elif kind == CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            self._apply_current(name, None if value is None else read_current(value))
        elif kind == CONSUMER_GROUP_REGULAR_EXPRESSION:
            _put(self.regexes, name, None if value is None else read_regex(value))
        self._put_record(key, value)

    def _put_record(self, key: bytes, value: bytes | None) -> None:
        before = self.records.get(key)
        if before is not None:
            self.memory_bytes -= RECORD_COPIES * (len(key) + len(before))
        if value is None:
            self.records.pop(key, None)
        else:
            self.records[key] = value
            self.memory_bytes += RECORD_COPIES * (len(key) + len(value))

    def _apply_member(self, member_id: str, member: ConsumerGroupMember | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and self.static_ids.get(before.instance_id) == member_id:
                del self.static_ids[before.instance_id]
        _put(self.members, member_id, member)
        if member is not None:
            self._count(member, 1)
            if member.instance_id is not None:
                self.static_ids[member.instance_id] = member_id
        self.memory_bytes += MEMBER_BYTES * ((member is not None) - (before is not None))
        self._update_unreconciled(member_id)

    def _count(self, member: ConsumerGroupMember, change: int) -> None:
        self.memory_bytes += change * (text_bytes(member.member_id) + NAME_BYTES * len(member.topics))
        for name in member.topics:
            _add(self.topic_members, name, change)
        if member.regex:
            _add(self.regex_members, member.regex, change)
        if member.server_assignor is not None:
            _add(self.assignors, member.server_assignor, change)

    def _apply_target_metadata(self, metadata: TargetMetadata) -> None:
        changed = metadata.assignment_epoch != self.assignment_epoch
        self.target_metadata = metadata
        if changed:
            epoch = metadata.assignment_epoch
            self.unreconciled = {
                each for each in self.members if not self.current_of(each).is_reconciled_to(epoch)
            }

    def _apply_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        before = self.current.get(member_id)
        if before is not None:
            self._release(member_id, before.assigned)
            self._release(member_id, before.revoked)
        _put(self.current, member_id, current)
        if current is not None:
            self._own(member_id, current.assigned)
            self._own(member_id, current.revoked)
        self._update_unreconciled(member_id)

    def _update_unreconciled(self, member_id: str) -> None:
        is_reconciled = self.current_of(member_id).is_reconciled_to(self.assignment_epoch)
        if member_id not in self.members or is_reconciled:
            self.unreconciled.discard(member_id)
        else:
            self.unreconciled.add(member_id)

    def _own(self, member_id: str, partitions: EpochsByPartition) -> None:
        for topic_id, epochs in partitions.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in epochs:
                owners[partition] = member_id

    def _release(self, member_id: str, partitions: EpochsByPartition) -> None:
        for topic_id, epochs in partitions.items():
            owners = self.owners.get(topic_id, {})
            for partition in epochs:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)


_GROUP_KEY: Final = CONSUMER_GROUP_METADATA.to_bytes(2, "big")
_MEMBER_KEY: Final = CONSUMER_GROUP_MEMBER_METADATA.to_bytes(2, "big")


def _put(mapping: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        mapping.pop(name, None)
    else:
        mapping[name] = value


def _add(counts: dict[str, int], name: str, change: int) -> None:
    count = counts.get(name, 0) + change
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


def subscribed_names(
    names: Iterable[str], regexes: Iterable[str], resolved: Mapping[str, ResolvedRegex]
) -> set[str]:
    """The topics of a subscription by names and by regular expressions; an unresolved one matches nothing."""
    return set(names).union(*(resolved[regex].topics for regex in regexes if regex in resolved))


def find_remaining(counts: Mapping[str, int], removed: Iterable[str]) -> set[str]:
    """The names that are counted more often than they are removed."""
    removed_counts = Counter(removed)
    return {name for name, count in counts.items() if count > removed_counts[name]}


def subscription_bytes(names: Collection[str], regex: str) -> int:
    """About the memory of a member's subscription; an expression has a record of its own besides."""
    return NAME_BYTES * len(names) + RECORD_COPIES * (sum(map(len, names)) + 2 * len(regex))
