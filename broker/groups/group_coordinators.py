"""The lookup of a consumer group's coordinator and store, for the handlers.

Owns: `GroupCoordinators`, one per broker, with a store and a coordinator per data log group that the node has
a copy of. Invariants: only the leader of a group's shard serves it; callers have taken a read barrier of
the shards that `lapsed_shards` names. Does not: map groups to log groups or make `__consumer_offsets`
(`broker/coordination/`), expire offsets (`offset_expiration.py`), or know members (`group_coordinator.py`).
Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry
from lockstep.broker.groups.consumer.cluster_context import ClusterContext
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_shard import GroupShard
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.groups.group_store import GroupStore, OwnAppender
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID, MetadataCache
from lockstep.broker.metadata.metadata_image import GROUP_CONFIGS
from lockstep.broker.metadata.metadata_version import CONSUMER_GROUPS_VERSION
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_groups import ListedGroup
from lockstep.storage.log_group import LogGroup

CONFLICTING_TOPIC: Final = (
    f"the topic {CONSUMER_OFFSETS} is an ordinary one, made before this broker served consumer groups: "
    "no group can be served until it is deleted"
)

NO_CONFIGS: Final[Mapping[str, str]] = {}
MAX_ID_LENGTH: Final = 1_024
"""Characters of a group's id. Kafka allows 32,767 bytes; each offset is written with its group's id, so one
request about all partitions would come to gigabytes."""


class GroupCoordinators(CoordinatorRegistry[GroupShard]):
    """The shards of this node, by log group."""

    topic_name = CONSUMER_OFFSETS
    topic_id = CONSUMER_OFFSETS_TOPIC_ID
    conflicting_topic = CONFLICTING_TOPIC
    log = logging.getLogger("lockstep.groups")

    def __init__(
        self,
        cluster: MetadataCache,
        clock_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(cluster)
        self._clock_ms = clock_ms
        self._loop = loop
        self.cluster_context = ClusterContext(
            cluster,
            lambda: cluster.settings,
            lambda group_id: cluster.image.configs.get((GROUP_CONFIGS, group_id), NO_CONFIGS),
            lambda: cluster.changes,
            lambda: cluster.metadata_index,
        )

    def add_shard(
        self, log_group_id: int, group: LogGroup, state: GroupsState, appender: OwnAppender | None = None
    ) -> None:
        """This node has a copy of a data log group: serve its consumer groups whenever it is led here.

        Args:
            state: what its partitions of `__consumer_offsets` are replayed into.
            appender: its append path, for what is part of a transaction; None where nothing will be.
        """
        self._require_absent(log_group_id)
        store = GroupStore(group, state, partial(self._led_partition, log_group_id), self._clock_ms, appender)
        coordinator = GroupCoordinator(
            store, self._cluster.settings, self._loop, self._batch_bytes, self.cluster_context
        )
        self._shards[log_group_id] = GroupShard(store, coordinator)

    def coordinator(self, group_id: str) -> GroupCoordinator:
        """Returns the coordinator of this group, perhaps not yet loaded. Raises RequestError."""
        return self._find_shard(group_id).coordinator

    @property
    def has_consumer_protocol(self) -> bool:
        """Returns whether consumer groups are served: the broker has their protocol, and every node of the
        cluster replays their records."""
        version = self._cluster.image.metadata_version
        return self.cluster_context.is_enabled and version >= CONSUMER_GROUPS_VERSION

    def store(self, group_id: str) -> GroupStore:
        """Returns the store of this group, with its committed state. Raises RequestError."""
        return self.of(group_id)[0]

    def of(self, group_id: str) -> tuple[GroupStore, GroupCoordinator]:
        """The store and the coordinator of this group. Raises RequestError."""
        shard = self._find_shard(group_id)
        return shard.store, shard.require()

    def listed(self) -> list[ListedGroup]:
        """Returns every group that is coordinated here. Raises RequestError where that is not certain now."""
        found: list[ListedGroup] = []
        for shard in self._shards.values():
            if shard.group.is_leader:
                found += shard.require().listed()
            elif shard.group.leader_id < 0:
                raise RequestError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator of some groups is unknown"
                )
        return found

    def active_shards(self) -> list[tuple[GroupStore, GroupCoordinator]]:
        """Store and coordinator of every log group that is led here and loaded."""
        return [(each.store, each.coordinator) for each in self._serving_shards()]

    def lapsed_shards(self, keys: Sequence[str] = ()) -> Collection[GroupShard]:
        is_too_long = len(keys) == 1 and len(keys[0]) > MAX_ID_LENGTH
        return () if is_too_long else super().lapsed_shards(keys)

    def _find_shard(self, key: str) -> GroupShard:
        if len(key) > MAX_ID_LENGTH:
            problem = f"a group id of {len(key)} characters; at most {MAX_ID_LENGTH}"
            raise RequestError(ErrorCode.INVALID_GROUP_ID, problem)
        return super()._find_shard(key)

    def _batch_bytes(self) -> int:
        topic = self._find()
        return self._cluster.settings.message_max_bytes if topic is None else topic.config.max_message_bytes

    def of_log_group(self, log_group_id: int) -> tuple[GroupStore, GroupCoordinator]:
        """Returns the shard of one log group. Raises RequestError where it is not led here, or not loaded."""
        shard = self._shards.get(log_group_id)
        if shard is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"log group {log_group_id} has no replica here")
        if shard.is_lapsed:  # the caller retries
            text = f"it is not certain that log group {log_group_id} is still led here"
            raise RequestError(ErrorCode.NOT_COORDINATOR, text)
        return shard.store, shard.require()
