"""The interface of the assignors of consumer groups, and their names.

An assignor is pure: from the members' subscriptions and their present target it computes the next one.
Invariants of every assignor: each partition of a subscribed topic has exactly one member,
which is subscribed to it.
Source: Kafka's ConsumerGroupPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.groups.consumer.consumer_group_records import Partitions

UNIFORM: Final = "uniform"
RANGE: Final = "range"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it."""

    topics: frozenset[bytes]
    """The ids of the existing topics that it is subscribed to."""
    instance_id: str | None = None
    assigned: Partitions | None = None
    """Its present target; None for a new member."""


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Partitions]]
"""Computes the target of each member, from the members by id and the partition count of each topic."""
