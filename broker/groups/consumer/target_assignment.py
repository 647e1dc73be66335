"""The target assignment of a consumer group: from its members and topics to the records of what has changed.

Pure. Owns: the choice of the assignor, and the difference between the present and the next target. Invariant:
the record of the assignment's epoch comes last, so that a target of which only a part was written is
computed again. Source: Kafka's TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lockstep.broker.groups.consumer.assignor import RANGE, UNIFORM, Assignor, MemberSpec
from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    Partitions,
    ResolvedRegex,
    TargetMetadata,
    target_metadata_record,
    target_record,
)
from lockstep.broker.groups.consumer.range_assignor import assign_ranges
from lockstep.broker.groups.consumer.subscribed_topics import TopicDescriber, ids_of, names_of
from lockstep.broker.groups.consumer.uniform_assignor import assign_uniformly
from lockstep.broker.groups.group_records import Record

ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}


def preferred_assignor(requested: Mapping[str, int], configured: Sequence[str]) -> str:
    """The assignor that most members request, else the first configured one."""
    return max(requested, key=lambda name: (requested[name], name), default=configured[0])


def next_target(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    targets: Mapping[str, Partitions],
    regexes: Mapping[str, ResolvedRegex],
    topics: TopicDescriber,
    assignor_name: str,
    metadata: TargetMetadata,
) -> tuple[dict[str, Partitions], list[Record]]:
    """Computes the target assignment of these members.

    Args:
        members, targets, regexes: the group's, with the changes of the present operation.
        metadata: the epoch of the new target, and the time.
    """
    counts: dict[bytes, int] = {}
    specs: dict[str, MemberSpec] = {}
    id_sets: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    for member_id, member in members.items():
        subscription = member.topics, member.regex
        ids = id_sets.get(subscription)
        if ids is None:
            found = ids_of(names_of(member, regexes), topics)
            counts.update(found)
            ids = id_sets[subscription] = frozenset(found)
        specs[member_id] = MemberSpec(ids, member.instance_id, targets.get(member_id))
    target = ASSIGNORS[assignor_name](specs, counts)
    records = [
        target_record(group.group_id, member_id, partitions)
        for member_id, partitions in target.items()
        if targets.get(member_id) != partitions
    ]
    records.append(target_metadata_record(group.group_id, metadata))
    return target, records
