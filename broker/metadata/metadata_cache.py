"""The cluster as this node serves it: topics that clients can see, their partitions, the settings in force.

Owns: `MetadataCache`, which joins the recorded metadata (`metadata_image.py`) with the log groups of this
node so that handlers find a partition by name or id. Invariants: a topic is visible from its `ready` record
to its `delete` record, on every node, because only replay shows and hides it; a partition without a log here
is led elsewhere. Does not: decide what may be created or deleted (`broker/controller/topics.py` does), or
know clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from lockstep.broker.membership.placement import replicas_of
from lockstep.broker.metadata.lowest_sequences import LowestSequences
from lockstep.broker.metadata.metadata_image import (
    BROKER_CONFIGS,
    WHOLE_CLUSTER,
    Changed,
    MetadataImage,
    TopicEntry,
    TopicState,
)
from lockstep.broker.metadata.remote_leader import UNBOUND, RemoteLeader, unbound
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.dynamic_config import apply_accepted
from lockstep.broker.settings.topic_config import TopicConfig, restored_config, topic_config
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CONTROL_PARTITION

if TYPE_CHECKING:
    from lockstep.broker.requests.request_context import EncodedResponse
    from lockstep.storage.log_group import LogGroup

log = logging.getLogger("lockstep.metadata")

METADATA_GROUP: Final = 0
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""Kafka's own id for __cluster_metadata."""
CONSUMER_OFFSETS: Final = "__consumer_offsets"
CONSUMER_OFFSETS_TOPIC_ID: Final = bytes(15) + b"\x02"
"""Fixed, so that a log group knows before it is opened which state machine replays that topic."""
TRANSACTION_STATE: Final = "__transaction_state"
TRANSACTION_STATE_TOPIC_ID: Final = bytes(15) + b"\x03"
"""Fixed for the same reason."""


class Partition:
    """One partition. It is written through this node where `group.is_leader`, and read where `is_here`."""

    __slots__ = ("delayed_fetches", "group", "index", "log", "topic", "visible_from_index")

    def __init__(self, topic: Topic, index: int, group: LogGroup, visible_from_index: int = 0) -> None:
        self.visible_from_index = visible_from_index
        """The index in group 0's log from which a node shows the partition, and its leader accepts
        batches."""
        self.topic = topic
        self.index = index
        self.group = group
        """The log group; a `RemoteLeader` in its place until it has opened the partition on this node."""
        self.log = unbound(topic.topic_id, index)
        self.delayed_fetches: dict[Any, None] = {}
        """Fetches to try again when this partition grows, oldest first; `FetchPurgatory` owns them."""

    @property
    def is_here(self) -> bool:
        """True if this node has a replica of it."""
        return self.log.local_id != UNBOUND

    @property
    def leader_epoch(self) -> int:
        return self.group.leader_epoch(self.log)

    @property
    def last_stable_offset(self) -> int:
        """The offset of the first open transaction, or the high watermark."""
        return self.log.last_stable_offset


class Topic:
    """One topic that clients can see."""

    __slots__ = ("config", "deleted", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: list[Partition] = []
        self.deleted = False
        """True once the topic is deleted, for code that still has the object."""
        self.is_internal = name in INTERNAL_TOPICS
        """True for a topic of the broker, which clients may read and not write."""


INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})


class Purgatory(Protocol):
    """The fetches that wait for partitions, as this module uses them."""

    def wake(self, partition: Partition) -> None:
        """The partition grew, or is gone: try its waiting fetches."""


class MetadataCache:
    """Topics and partitions as clients see them, and the log groups of this node.

    Args:
        groups: the log groups of this node, which `add_group` and `remove_group` change.
        leader_of: the known leader of a group without a replica here, (node id or -1, term).
        monotonic: a monotonic clock.
    """

    def __init__(
        self,
        settings: Settings,
        image: MetadataImage,
        groups: dict[int, LogGroup],
        fetch_purgatory: Purgatory,
        leader_of: Callable[[int], tuple[int, int]],
        monotonic: Callable[[], float],
    ) -> None:
        self.image = image
        self._start_settings = settings
        self.settings = self._settings_in_force()
        """The settings of the start with the changes made since."""
        self.on_settings: list[Callable[[Settings], None]] = []
        """Called with the settings in force when they have changed."""
        self.on_configs_recorded: list[Callable[[Settings], None]] = []
        """Called with the settings in force at each record of configurations, whether it changes them or
        not."""
        self.settings_checks: list[Callable[[Settings], None]] = []
        """Called with this node's settings before a change of them is recorded; they raise ConfigError."""
        self.on_quotas: list[Callable[[], None]] = []
        """Called when quotas were set or removed."""
        self.on_nodes: list[Callable[[], None]] = []
        """Called when the recorded nodes or the placement changed."""
        self.on_group_added: list[Callable[[], None]] = []
        """Called when a log group was added to this node."""
        self.first_sequences = LowestSequences(monotonic)
        """The lowest sequences of batches that this node rejected, in all its partitions."""
        self._fetch_purgatory = fetch_purgatory
        self._leader_of = leader_of
        self.groups = groups
        self._remote: dict[int, RemoteLeader] = {}
        self.cached_responses: dict[tuple[object, ...], EncodedResponse] = {}
        """Encoded responses about all topics; cleared at each change of their content."""
        self.cached_topics: dict[tuple[object, ...], EncodedResponse] = {}
        """Encoded responses about one topic each; cleared at the same changes."""
        self.changes = 0
        """The number of changes of topics, partitions, their log groups and settings: what was found here
        while it is the same is still so."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._logs: dict[bytes, dict[int, tuple[LogGroup, PartitionLog]]] = {}
        """The open partitions of this node's groups, by topic id and index."""
        self.partition_count = 0
        image.changed = self._on_image_changed
        self._on_image_changed(Changed.EVERYTHING, b"")

    @property
    def cluster_id(self) -> str | None:
        """None before the cluster's first start is complete."""
        return self.image.cluster_id

    @property
    def metadata_index(self) -> int:
        """The index in group 0's log up to which this node has replayed the metadata."""
        group = self.groups.get(METADATA_GROUP)
        return 0 if group is None else group.applied_index

    @property
    def data_groups(self) -> int:
        """The number of log groups over which topics are spread."""
        placed = len(self.image.placement) - 1
        return placed if placed > 0 else self._start_settings.data_groups

    @property
    def data_replicas(self) -> int:
        """The most replicas of a partition."""
        if len(self.image.placement) > 1:
            return replicas_of(self.image.placement, self.node_count)
        return self._start_settings.lockstep_data_replicas

    @property
    def is_single_node(self) -> bool:
        """True if the cluster is this node, and no other can join."""
        return not self._start_settings.lockstep_peers

    @property
    def node_count(self) -> int:
        """Nodes of the cluster, alive or not; founders count before they have registered."""
        placements = self.image.placement.values()
        node_ids = {*self.image.nodes, *(node for nodes in placements for node in nodes)}
        # --peers names also who was removed since: it counts only before anything is recorded.
        return len(node_ids or self._start_settings.peers()) or 1

    def nodes_of(self, group_id: int) -> tuple[int, ...]:
        """The nodes that a log group is placed on, the preferred leader first."""
        return self.image.placement.get(group_id) or (self._start_settings.node_id,)

    # --- log groups of this node ----------------------------------------------------------------------------

    def add_group(self, group: LogGroup) -> None:
        """Add a log group to this node."""
        self.groups[group.group_id] = group
        group.control.on_open = partial(self._on_partition_opened, group)
        group.control.on_close = partial(self._on_partition_closed, group)
        for partition in list(group.partitions.values()):
            if partition.local_id != CONTROL_PARTITION:
                self._on_partition_opened(group, partition)
        for listener in self.on_group_added:
            listener()

    def remove_group(self, group_id: int) -> LogGroup:
        """Remove a log group from this node."""
        group = self.groups.pop(group_id)
        for partition in list(group.partitions.values()):
            if partition.local_id != CONTROL_PARTITION:
                self._on_partition_closed(group, partition)
        return group

    def open_partitions(self, topic_id: bytes, group_id: int) -> dict[int, PartitionLog]:
        """The partitions of a topic, whatever its state, that one group of this node has opened; by index."""
        logs_by_index = self._logs.get(topic_id, {})
        return {index: log for index, (group, log) in logs_by_index.items() if group.group_id == group_id}

    def open_partition(self, topic_id: bytes, group_id: int, index: int) -> PartitionLog | None:
        """One partition of a topic, whatever its state, if that group of this node has opened it."""
        logs_by_index = self._logs.get(topic_id)
        group, log = (None, None) if logs_by_index is None else logs_by_index.get(index, (None, None))
        return log if group is not None and group.group_id == group_id else None

    def _on_partition_opened(self, group: LogGroup, log: PartitionLog) -> None:
        self._logs.setdefault(log.topic_id, {})[log.index] = group, log
        topic = self._by_id.get(log.topic_id)
        if topic is not None and log.index < len(topic.partitions):
            self._attach(topic.partitions[log.index], group, log)

    def _on_partition_closed(self, group: LogGroup, log: PartitionLog) -> None:
        logs = self._logs.get(log.topic_id, {})
        if logs.get(log.index, (group, log))[1] is not log:
            return  # opened again since
        logs.pop(log.index, None)
        if not logs:
            self._logs.pop(log.topic_id, None)
        topic = self._by_id.get(log.topic_id)
        if topic is not None and log.index < len(topic.partitions):
            partition = topic.partitions[log.index]
            partition.group, partition.log = (
                self._remote_leader(group.group_id),
                unbound(log.topic_id, log.index),
            )
            self._fetch_purgatory.wake(partition)
            self.on_change()

    def _attach(self, partition: Partition, group: LogGroup, log: PartitionLog) -> None:
        if partition.log is log:
            self._fetch_purgatory.wake(partition)  # its group has switched to another state, of more commits
            return
        partition.group, partition.log = group, log
        log.on_advance.append(partial(self._fetch_purgatory.wake, partition))
        self.on_change()

    def _remote_leader(self, group_id: int) -> LogGroup:
        """A remote leader in place of a log group: callers check `is_leader` before anything else."""
        return cast("LogGroup", self._remote.setdefault(group_id, RemoteLeader(group_id, self._leader_of)))

    def on_change(self) -> None:
        """Clears the caches that depend on what clients see, which has changed."""
        self.changes += 1
        self.cached_responses.clear()
        self.cached_topics.clear()

    def on_leader_change(self, group_id: int) -> None:
        """The leader of a group has changed: wake the delayed fetches of its partitions."""
        self.on_change()
        group = self.groups.get(group_id)
        if group is None:
            return
        for topic in self._by_name.values():
            for partition in topic.partitions:
                if partition.delayed_fetches and partition.group is group:
                    self._fetch_purgatory.wake(partition)

    # --- topics ---------------------------------------------------------------------------------------------

    def topic(self, name: str | None) -> Topic | None:
        """The topic of this name, if clients can see it."""
        return self._by_name.get(name) if name is not None else None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, if clients can see it."""
        return self._by_id.get(topic_id)

    def topics(self) -> list[Topic]:
        """Every visible topic, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def partition(self, name: str, index: int) -> Partition | None:
        """One partition by its topic's name."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    # --- following the image --------------------------------------------------------------------------------

    def _on_image_changed(self, change: Changed, topic_id: bytes) -> None:
        match change:
            case Changed.TOPIC:
                self._apply_topic(topic_id)
            case Changed.CONFIGS:
                self._apply_settings()
            case Changed.ACLS:
                self.on_change()  # what was derived for a client rests on its ACLs, too
            case Changed.QUOTAS:
                self._on_quotas_changed()
            case Changed.NODES:
                self._on_nodes_changed()
            case Changed.EVERYTHING:
                for each in {*self._by_id, *self.image.topics}:
                    self._apply_topic(each)
                self._apply_settings()
                self._on_quotas_changed()
                self._on_nodes_changed()

    def _on_quotas_changed(self) -> None:
        self.on_change()  # whether a client's requests count for a quota was derived, too
        for listener in self.on_quotas:
            listener()

    def _on_nodes_changed(self) -> None:
        self.on_change()
        for listener in self.on_nodes:
            listener()

    def _apply_topic(self, topic_id: bytes) -> None:
        """Shows a topic to clients as it is recorded now."""
        entry = self.image.topics.get(topic_id)
        topic = self._by_id.get(topic_id)
        if entry is None or entry.state is not TopicState.READY:
            if topic is not None:
                self._remove_topic(topic)
            return
        if topic is None:
            topic = Topic(entry.name, entry.topic_id, self._config_of(entry))
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
            self.first_sequences.topic_created(topic.name, topic_id)
        elif entry.overrides != topic.config.overrides:
            topic.config = self._config_of(entry)
        self._add_partitions(topic, entry)
        self.on_change()

    def _config_of(self, entry: TopicEntry) -> TopicConfig:
        config, problems = restored_config(entry.overrides, self.settings)
        for problem in problems:
            log.warning("topic %s: %s", entry.name, problem)
        return config

    def _add_partitions(self, topic: Topic, entry: TopicEntry) -> None:
        logs = self._logs.get(topic.topic_id, {})
        visible_from_index = self.metadata_index + 1  # the entry that is being applied
        for index in range(len(topic.partitions), len(entry.groups)):
            partition = Partition(topic, index, self._remote_leader(entry.groups[index]), visible_from_index)
            topic.partitions.append(partition)
            self.partition_count += 1
            if index in logs:
                self._attach(partition, *logs[index])

    def _remove_topic(self, topic: Topic) -> None:
        topic.deleted = True
        self._by_id.pop(topic.topic_id, None)
        self.first_sequences.topic_deleted(topic.name, topic.topic_id)
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self.partition_count -= len(topic.partitions)
        self.on_change()
        for partition in topic.partitions:
            self._fetch_purgatory.wake(partition)

    def _apply_settings(self) -> None:
        """Applies the recorded settings of brokers to each topic that does not set them itself."""
        settings = self._settings_in_force()
        for recorded in self.on_configs_recorded:
            recorded(settings)
        if settings == self.settings and (settings.dynamic_cluster, settings.dynamic_node) == (
            self.settings.dynamic_cluster,
            self.settings.dynamic_node,
        ):
            return  # a group's configuration, for one
        self.settings = settings
        defaults = topic_config({}, self.settings)
        for topic in self._by_name.values():
            entry = self.image.topics[topic.topic_id]
            topic.config = self._config_of(entry) if entry.overrides else defaults
        self.on_change()
        for listener in self.on_settings:
            listener(self.settings)

    def _settings_in_force(self) -> Settings:
        configs = self.image.configs
        changes = [
            configs.get((BROKER_CONFIGS, name), {})
            for name in (WHOLE_CLUSTER, str(self._start_settings.node_id))
        ]
        settings, problems = apply_accepted(self._start_settings, *changes)
        for problem in problems:
            log.warning("broker configuration: %s; it has no effect", problem)
        return settings
