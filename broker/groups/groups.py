"""The front door to consumer groups: which coordinator looks after a group, and making `__consumer_offsets`.

Owns: `Groups`, one per broker, with a store and a coordinator per data log group that the node has a copy
of. A group belongs to the partition of `__consumer_offsets` that Kafka would give it, and so to the log group
that holds that partition; its coordinator is the node that leads there.
Invariants: nothing is said of a group but by a leader that has its lease; the topic has its fixed id; an
ordinary topic of its name, made before there were groups, is not used and not touched.
Does not: follow leaderships (`hosted.py`), expire offsets (`expiration.py`), or know members
(`coordinator.py`).
Source: Kafka's GroupCoordinatorService.partitionFor, AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import mul
from struct import unpack
from typing import Final, Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.groups.hosted import HostedGroups
from broker.groups.state import GroupsState
from broker.groups.store import GroupStore, OwnAppender
from broker.metadata import CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID, Cluster, Topic
from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup
from storage.group import LogGroup
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


class TopicMaker(Protocol):
    """Whoever has topics made."""

    async def ensure(self, name: str) -> Topic:
        """The topic of this name, made if need be. Raises Refused."""


class Groups:
    """Nothing is hosted at first; see `host`."""

    def __init__(
        self,
        cluster: Cluster,
        controller: TopicMaker,
        clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster = cluster
        self._controller = controller
        self._clock_ms = clock_ms
        self._loop = loop
        self._hosted: dict[int, HostedGroups] = {}
        """By data log group."""

    def host(
        self, number: int, group: LogGroup, state: GroupsState, appender: OwnAppender | None = None
    ) -> None:
        """This node has a copy of a data log group: serve its consumer groups whenever it is led here.

        Args:
            state: what its partitions of `__consumer_offsets` are replayed into.
            appender: its append path, for what is part of a transaction; None where nothing will be.
        """
        if number in self._hosted:
            raise ValueError(f"log group {number} is hosted already")
        store = GroupStore(group, state, partial(self._partition, number), self._clock_ms, appender)
        coordinator = GroupCoordinator(store, self._cluster.settings, self._loop)
        self._hosted[number] = HostedGroups(store, coordinator)

    def unhost(self, number: int) -> None:
        """It has none any more. Answers everybody who waits; nothing where it is not hosted."""
        hosted = self._hosted.pop(number, None)
        if hosted is not None:
            hosted.leave()

    def check(self) -> None:
        """Say what keeps groups from being served; the topics are known by now."""
        if self._is_foreign():
            log.error("%s", FOREIGN_TOPIC)

    def resign(self) -> None:
        """Answer everybody who waits: this broker stops. What is on its way into the log still gets there."""
        for hosted in self._hosted.values():
            hosted.stop()

    async def ready(self) -> None:
        """Make `__consumer_offsets` if it is not there. Raises Refused."""
        if self._find() is not None:
            return
        if self._is_foreign():
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
        await self._controller.ensure(CONSUMER_OFFSETS)

    @property
    def is_ready(self) -> bool:
        """Is `__consumer_offsets` there?"""
        return self._find() is not None

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has this group's records."""
        topic = self._find()
        count = self._cluster.settings.offsets_topic_num_partitions
        return positive_hash(group_id) % (len(topic.partitions) if topic is not None else count)

    def coordinator_node(self, group_id: str) -> int:
        """The node that coordinates this group as far as is known; -1 for none."""
        topic = self._find()
        if topic is None:
            return -1
        leader_id = topic.partitions[self.partition_of(group_id)].group.leader_id
        return leader_id

    def coordinator(self, group_id: str) -> GroupCoordinator:
        """Who looks after this group, perhaps not yet loaded. Raises Refused."""
        return self._find_hosted(group_id).coordinator

    def store(self, group_id: str) -> GroupStore:
        """Where this group is written, and what is committed of it. Raises Refused."""
        hosted = self._find_hosted(group_id)
        hosted.require_loaded()
        return hosted.store

    def of(self, group_id: str) -> tuple[GroupStore, GroupCoordinator]:
        """Both of them. Raises Refused."""
        hosted = self._find_hosted(group_id)
        hosted.require_loaded()
        return hosted.store, hosted.coordinator

    def listed(self) -> list[ListedGroup]:
        """Every group that is coordinated here. Raises Refused where that is not certain now."""
        found: list[ListedGroup] = []
        for hosted in self._hosted.values():
            if hosted.group.is_leader:
                if not hosted.group.has_lease:
                    raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is not certain who coordinates")
                hosted.require_loaded()
                found += hosted.coordinator.listed()
            elif hosted.group.leader_id < 0:
                raise Refused(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody is known to coordinate some groups"
                )
        return found

    def coordinators(self) -> Sequence[GroupCoordinator]:
        """Every coordinator that serves here now."""
        return [each.coordinator for each in self._hosted.values() if each.serves]

    def of_log_groups(self) -> list[tuple[GroupStore, GroupCoordinator]]:
        """Store and coordinator of every log group that is led here and loaded."""
        return [(each.store, each.coordinator) for each in self._hosted.values() if each.serves]

    def led_stores(self) -> list[GroupStore]:
        """The stores among these."""
        return [each.store for each in self._hosted.values() if each.serves]

    def of_log_group(self, number: int) -> tuple[GroupStore, GroupCoordinator]:
        """Those of one log group. Raises Refused where it is not led here, or not loaded."""
        hosted = self._hosted.get(number)
        if hosted is None:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {number} is not hosted here")
        hosted.require_lease()
        hosted.require_loaded()
        return hosted.store, hosted.coordinator

    # --- within -------------------------------------------------------------------------------------------

    def _find_hosted(self, group_id: str) -> HostedGroups:
        topic = self._find()
        if topic is None:
            if self._is_foreign():
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREIGN_TOPIC)
            raise Refused(ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS} is not there yet")
        group = topic.partitions[positive_hash(group_id) % len(topic.partitions)].group
        hosted = self._hosted.get(group.group_id)
        if hosted is None or not group.is_leader:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        hosted.require_lease()
        return hosted

    def _find(self) -> Topic | None:
        return self._cluster.topic_by_id(CONSUMER_OFFSETS_TOPIC_ID)

    def _is_foreign(self) -> bool:
        topic = self._cluster.topic(CONSUMER_OFFSETS)
        return topic is not None and topic.topic_id != CONSUMER_OFFSETS_TOPIC_ID

    def _partition(self, number: int, group_id: str) -> PartitionLog | None:
        topic = self._find()
        if topic is None:
            return None
        partition = topic.partitions[positive_hash(group_id) % len(topic.partitions)]
        group = partition.group  # of other nodes it has no log, and is led elsewhere
        return partition.log if group.group_id == number and group.is_leader else None
