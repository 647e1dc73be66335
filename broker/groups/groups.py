"""The front door to consumer groups: which coordinator looks after a group, and making `__consumer_offsets`.

Owns: `Groups`, one per broker, with a store and a coordinator per data log group. A group belongs to the
partition of `__consumer_offsets` that Kafka would give it, and so to the log group that holds that partition.
Invariants: the topic has its fixed id; an ordinary topic of its name, made before there were groups, is not
used and not touched. Does not: expire offsets (`expiration.py`), or know members (`coordinator.py`).
Source: Kafka's GroupCoordinatorService.partitionFor, AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import mul
from struct import unpack
from typing import Final

from broker.groups.coordinator import GroupCoordinator
from broker.groups.state import GroupsState
from broker.groups.store import GroupStore
from broker.metadata import CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID, Cluster, Topic
from broker.refused import Refused
from broker.topics import Topics
from protocol.errors import ErrorCode
from storage.partition import PartitionLog

log = logging.getLogger("lockstep.groups")

HASHES_REMEMBERED: Final = 10_000
LONGEST_REMEMBERED: Final = 256
"""Characters: nobody calls a group by more, but 10,000 made up ids of 32 KB each would be remembered, too."""
_STEP: Final = 256
_POWERS: Final = [pow(31, exponent, 1 << 32) for exponent in reversed(range(_STEP))]
FOREIGN_TOPIC: Final = (
    f"the topic {CONSUMER_OFFSETS} is an ordinary one, made before this broker served consumer groups: "
    "no group can be served until it is deleted"
)


def positive_hash(group_id: str) -> int:
    """Java's String.hashCode, and Kafka's Utils.abs of it."""
    return _remembered_hash(group_id) if len(group_id) <= LONGEST_REMEMBERED else _hash(group_id)


def _hash(group_id: str) -> int:
    found = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    for at in range(0, len(units), _STEP):
        some = units[at : at + _STEP]
        added = sum(map(mul, some, _POWERS[-len(some) :]))
        found = (found * pow(31, len(some), 1 << 32) + added) & 0xFFFF_FFFF
    if found < 1 << 31:
        return found
    return 0 if found == 1 << 31 else (1 << 32) - found


_remembered_hash = lru_cache(HASHES_REMEMBERED)(_hash)


class Groups:
    """Args: states: by data log group, what its partitions of `__consumer_offsets` are replayed into."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        states: Mapping[int, GroupsState],
        clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self.stores = {
            number: GroupStore(cluster.groups[number], state, partial(self._partition, number), clock_ms)
            for number, state in states.items()
        }
        """By log group."""
        self._coordinators = {
            number: GroupCoordinator(store, cluster.settings, loop) for number, store in self.stores.items()
        }
        self._topic: Topic | None = None

    def load(self) -> None:
        """Take over the groups that were there before; the topics are known by now."""
        if self._is_foreign():
            log.error("%s", FOREIGN_TOPIC)
        for coordinator in self._coordinators.values():
            coordinator.load()

    def resign(self) -> None:
        """Answer everybody who waits: this broker stops."""
        for coordinator in self._coordinators.values():
            coordinator.resign()

    async def ready(self) -> None:
        """Make `__consumer_offsets` if it is not there. Raises Refused."""
        if self._find() is not None:
            return
        if self._is_foreign():
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
        await self._topics.ensure(CONSUMER_OFFSETS)

    @property
    def is_ready(self) -> bool:
        """Is `__consumer_offsets` there?"""
        return self._find() is not None

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has this group's records."""
        topic = self._find()
        count = self._cluster.settings.offsets_topic_num_partitions
        return positive_hash(group_id) % (len(topic.partitions) if topic is not None else count)

    def coordinator(self, group_id: str) -> GroupCoordinator:
        """Who looks after this group. Raises Refused."""
        return self._coordinators[self._log_group(group_id)]

    def store(self, group_id: str) -> GroupStore:
        """Where this group is written. Raises Refused."""
        return self.stores[self._log_group(group_id)]

    def of(self, group_id: str) -> tuple[GroupStore, GroupCoordinator]:
        """Both of them. Raises Refused."""
        number = self._log_group(group_id)
        return self.stores[number], self._coordinators[number]

    def coordinators(self) -> Sequence[GroupCoordinator]:
        """Every coordinator of this node."""
        return list(self._coordinators.values())

    def of_log_groups(self) -> list[tuple[GroupStore, GroupCoordinator]]:
        """Every log group's store and coordinator."""
        return [(self.stores[number], each) for number, each in self._coordinators.items()]

    # --- within -------------------------------------------------------------------------------------------

    def _log_group(self, group_id: str) -> int:
        topic = self._topic or self._find()
        if topic is None:
            if self._is_foreign():
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
            raise Refused(ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS} is not there yet")
        group = topic.partitions[positive_hash(group_id) % len(topic.partitions)].group
        if not group.is_leader:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        return group.group_id

    def _find(self) -> Topic | None:
        """The topic, which is never deleted once it is there."""
        if self._topic is None:
            self._topic = self._cluster.topic_by_id(CONSUMER_OFFSETS_TOPIC_ID)
        return self._topic

    def _is_foreign(self) -> bool:
        topic = self._cluster.topic(CONSUMER_OFFSETS)
        return topic is not None and topic.topic_id != CONSUMER_OFFSETS_TOPIC_ID

    def _partition(self, number: int, group_id: str) -> PartitionLog | None:
        topic = self._find()
        if topic is None:
            return None
        partition = topic.partitions[positive_hash(group_id) % len(topic.partitions)]
        return partition.log if partition.group.group_id == number else None
