"""The front door to one kind of coordinator: which one has a key, and making the topic that holds the keys.

Owns: `CoordinatorRegistry`, of which `GroupCoordinators` and `TransactionCoordinators` are the kinds; one of
each per broker, with a coordinator per data log group that the node has a copy of. A key (group id,
transactional id) belongs to the partition of the kind's topic that Kafka would give it, and so to the log
group that holds that partition; its coordinator is the node that leads there. Invariants: the topic has its
fixed id; an ordinary topic of its name, made before there was this kind of coordinator, is not used and not
touched. Does not: follow leaderships (`coordinator_shard.py`), or know what is coordinated. Source: Kafka's
GroupCoordinatorService.partitionFor, TransactionStateManager, AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from lockstep.broker.coordination.coordinator_shard import CoordinatorShard
from lockstep.broker.coordination.key_hash import positive_hash
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic, TopicPartition
from lockstep.broker.metadata.topic_validation import new_partition_count
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.partition import PartitionLog


class TopicMaker(Protocol):
    """The creation of topics."""

    async def ensure(self, name: str) -> Topic:
        """The topic of this name, made if need be. Raises RequestError."""


H = TypeVar("H", bound=CoordinatorShard[Any])


class CoordinatorRegistry(Generic[H]):
    """Nothing is hosted at first; the kinds have a `host`."""

    topic_name: ClassVar[str]
    topic_id: ClassVar[bytes]
    conflicting_topic: ClassVar[str]
    """What is said where an ordinary topic has the name."""
    log: ClassVar[logging.Logger]

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._hosted: dict[int, H] = {}
        """By data log group."""

    def unhost(self, number: int) -> None:
        """The copy is gone: answer everybody who waits. Nothing where the log group is not hosted."""
        hosted = self._hosted.pop(number, None)
        if hosted is not None:
            hosted.leave()

    def check(self) -> None:
        """Say what keeps this from being served; the topics are known by now."""
        if self._has_conflicting_topic():
            self.log.error("%s", self.conflicting_topic)

    def resign(self) -> None:
        """Answer everybody who waits: this broker stops. What is on its way into the log still gets there."""
        for hosted in self._hosted.values():
            hosted.stop()

    async def create_topic(self, topics: TopicMaker) -> None:
        """Create the topic if it is not there. Raises RequestError."""
        if self._find() is None:
            self._reject_conflicting_topic()
            await topics.ensure(self.topic_name)

    @property
    def is_ready(self) -> bool:
        """Is the topic there?"""
        return self._find() is not None

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has this key's records, or will have them."""
        topic = self._find()
        if topic is None:
            return positive_hash(key) % new_partition_count(self.topic_name, -1, self._cluster.settings)
        return positive_hash(key) % len(topic.partitions)

    def coordinator_node(self, key: str) -> int:
        """The node that coordinates this key as far as is known; -1 for none."""
        partition = self._topic_partition(key)
        return -1 if partition is None else partition.group.leader_id

    def lapsed_shards(self, keys: Sequence[str] = ()) -> Collection[H]:
        """The shards that are led here without a lease, for a read barrier: this key's, or all of them where
        none or several are named, for it would take long to look each up."""
        if len(keys) != 1:
            return [each for each in self._hosted.values() if each.is_lapsed]
        partition = self._topic_partition(keys[0])
        shard = None if partition is None else self._hosted.get(partition.group.group_id)
        return (shard,) if shard is not None and shard.is_lapsed else ()

    # --- for the kinds ------------------------------------------------------------------------------------

    def _require_absent(self, number: int) -> None:
        if number in self._hosted:
            raise ValueError(f"log group {number} is hosted already")

    def _serving_shards(self) -> list[H]:
        return [each for each in self._hosted.values() if each.serves]

    def _find_shard(self, key: str) -> H:
        """Returns this key's shard, perhaps not yet loaded. Raises RequestError."""
        partition = self._topic_partition(key)
        if partition is None:
            self._reject_conflicting_topic()
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"{self.topic_name} is not there yet")
        group = partition.group
        hosted = self._hosted.get(group.group_id)
        if hosted is None or not group.is_leader:
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        return hosted

    def _topic_partition(self, key: str) -> TopicPartition | None:
        """The partition that has this key's records; None before there is a topic."""
        topic = self._find()
        return None if topic is None else topic.partitions[positive_hash(key) % len(topic.partitions)]

    def _led_partition(self, number: int, key: str) -> PartitionLog | None:
        """The same where it is in this log group, and led here."""
        partition = self._topic_partition(key)
        if partition is None:
            return None
        group = partition.group  # of other nodes it has no log, and is led elsewhere
        return partition.log if group.group_id == number and group.is_leader else None

    # --- within -------------------------------------------------------------------------------------------

    def _find(self) -> Topic | None:
        return self._cluster.topic_by_id(self.topic_id)

    def _has_conflicting_topic(self) -> bool:
        topic = self._cluster.topic(self.topic_name)
        return topic is not None and topic.topic_id != self.topic_id

    def _reject_conflicting_topic(self) -> None:
        if self._has_conflicting_topic():
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.conflicting_topic)
