"""The `range` assignor: of each topic every subscriber gets a range, the first ones one partition more.

Pure. Invariants: members are ordered by instance id, then by member id, those without an instance id last, so
that a static member keeps its ranges; topics with equal partition counts and subscribers are co-partitioned.
Source: Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.groups.consumer.assignor import MemberSpec
from lockstep.broker.groups.consumer.consumer_group_records import Partitions


def assign_ranges(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Partitions]:
    """The next target of each member."""
    ordered = sorted(members, key=lambda each: _order(members[each].instance_id, each))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    target: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id in sorted(subscribers):
        own = subscribers[topic_id]
        least, extra = divmod(topics[topic_id], len(own))
        first = 0
        for index, member_id in enumerate(own):
            count = least + (index < extra)
            if count:
                target[member_id][topic_id] = tuple(range(first, first + count))
            first += count
    return dict(target)


def _order(instance_id: str | None, member_id: str) -> tuple[bool, str, str]:
    return instance_id is None, instance_id or "", member_id
