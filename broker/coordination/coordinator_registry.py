"""Finds the coordinator shard of a group id or transactional id, and creates the topic of their records.

Owns: `CoordinatorRegistry`, of which `GroupCoordinators` and `TransactionCoordinators` are the kinds; one of
each per broker, with a shard per data log group of which the node has a replica. A key (group id,
transactional id) belongs to the partition of the kind's topic that Kafka would give it, and so to the log
group that holds that partition; its coordinator is the node that leads there. Invariants: the topic has its
fixed id; an ordinary topic of its name, created before there was this kind of coordinator, is neither used
nor changed. Does not: follow leaderships (`coordinator_shard.py`), or know the coordinated state. Source:
Kafka's GroupCoordinatorService.partitionFor, TransactionStateManager, AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from lockstep.broker.coordination.coordinator_shard import CoordinatorShard
from lockstep.broker.coordination.key_hash import positive_hash
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.metadata.topic_validation import new_partition_count
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.partition import PartitionLog


class TopicCreator(Protocol):
    """The creation of topics."""

    async def ensure_topic(self, name: str) -> Topic:
        """The topic of this name, created where there is none. Raises RequestError."""


H = TypeVar("H", bound=CoordinatorShard[Any])


class CoordinatorRegistry(Generic[H]):
    """The shards of this node, by log group; each kind has its `add_shard`."""

    topic_name: ClassVar[str]
    topic_id: ClassVar[bytes]
    conflicting_topic: ClassVar[str]
    """The error text where an ordinary topic has the name."""
    log: ClassVar[logging.Logger]

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._shards: dict[int, H] = {}
        """By data log group."""

    def remove_shard(self, group_id: int) -> None:
        """The replica was removed: closes its shard, if there is one; pending requests fail."""
        shard = self._shards.pop(group_id, None)
        if shard is not None:
            shard.leave()

    def check(self) -> None:
        """Logs a conflicting topic; the topics are known by now."""
        if self._has_conflicting_topic():
            self.log.error("%s", self.conflicting_topic)

    def resign(self) -> None:
        """Fails all pending requests: this broker stops. Appended records are still committed."""
        for shard in self._shards.values():
            shard.stop()

    async def create_topic(self, topic_creator: TopicCreator) -> None:
        """Create the topic if it is not there. Raises RequestError."""
        if self._find() is None:
            self._reject_conflicting_topic()
            await topic_creator.ensure_topic(self.topic_name)

    @property
    def is_ready(self) -> bool:
        """Returns whether the topic exists."""
        return self._find() is not None

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has this key's records, or will have them."""
        topic = self._find()
        if topic is None:
            return positive_hash(key) % new_partition_count(self.topic_name, -1, self._cluster.settings)
        return positive_hash(key) % len(topic.partitions)

    def coordinator_node(self, key: str) -> int:
        """The node that coordinates this key, by the present metadata; -1 for none."""
        partition = self._topic_partition(key)
        return -1 if partition is None else partition.group.leader_id

    def lapsed_shards(self, keys: Sequence[str] = ()) -> Collection[H]:
        """The shards that are led here without a lease, for a read barrier: this key's, or all of them where
        none or several are named, for it would take long to look each up."""
        if len(keys) != 1:
            return [each for each in self._shards.values() if each.is_lapsed]
        partition = self._topic_partition(keys[0])
        shard = None if partition is None else self._shards.get(partition.group.group_id)
        return (shard,) if shard is not None and shard.is_lapsed else ()

    # --- for the kinds ------------------------------------------------------------------------------------

    def _require_absent(self, group_id: int) -> None:
        if group_id in self._shards:
            raise ValueError(f"log group {group_id} has a shard already")

    def _serving_shards(self) -> list[H]:
        return [each for each in self._shards.values() if each.serves]

    def _find_shard(self, key: str) -> H:
        """Returns this key's shard, perhaps not yet loaded. Raises RequestError."""
        partition = self._topic_partition(key)
        if partition is None:
            self._reject_conflicting_topic()
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"{self.topic_name} is not there yet")
        group = partition.group
        shard = self._shards.get(group.group_id)
        if shard is None or not group.is_leader:
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        return shard

    def _topic_partition(self, key: str) -> Partition | None:
        """The partition that has this key's records; None before there is a topic."""
        topic = self._find()
        return None if topic is None else topic.partitions[positive_hash(key) % len(topic.partitions)]

    def _led_partition(self, group_id: int, key: str) -> PartitionLog | None:
        """The same where it is in this log group, and led here."""
        partition = self._topic_partition(key)
        if partition is None:
            return None
        group = partition.group  # of other nodes it has no log, and is led elsewhere
        return partition.log if group.group_id == group_id and group.is_leader else None

    # --- within -------------------------------------------------------------------------------------------

    def _find(self) -> Topic | None:
        return self._cluster.topic_by_id(self.topic_id)

    def _has_conflicting_topic(self) -> bool:
        topic = self._cluster.topic(self.topic_name)
        return topic is not None and topic.topic_id != self.topic_id

    def _reject_conflicting_topic(self) -> None:
        if self._has_conflicting_topic():
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.conflicting_topic)
