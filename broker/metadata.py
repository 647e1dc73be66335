"""The cluster as this node serves it: topics that clients can see, their partitions, the settings in force.

Owns: `Cluster`, which joins what is recorded (`cluster_image.py`) with the log groups of this node so that
handlers find a partition by name or id. Invariant: a topic is visible from its `ready` record to its `delete`
record. Does not: decide what may be created or deleted (`topics.py` does), or know clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.cluster_image import BROKER_CONFIGS, WHOLE_CLUSTER, ClusterImage, TopicEntry
from broker.config import Settings
from broker.dynamic_config import in_force, still_valid
from broker.topic_config import TopicConfig, restored_config, topic_config
from storage.group import LogGroup
from storage.partition import PartitionLog

if TYPE_CHECKING:
    from broker.context import Encoded
    from broker.delayed import WaitingFetch, WaitingFetches

log = logging.getLogger("lockstep.metadata")

METADATA_GROUP: Final = 0
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""Kafka's own id for __cluster_metadata."""
CONSUMER_OFFSETS: Final = "__consumer_offsets"
CONSUMER_OFFSETS_TOPIC_ID: Final = bytes(15) + b"\x02"
"""Fixed, so that a log group can be told before it is opened what that topic is replayed into."""


class TopicPartition:
    """One partition that this node serves."""

    __slots__ = ("group", "index", "log", "topic", "waiting")

    def __init__(self, topic: Topic, index: int, group: LogGroup, partition_log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.group = group
        self.log = partition_log
        self.waiting: dict[WaitingFetch, None] = {}
        """Fetches to try again when this partition grows, oldest first."""

    @property
    def leader_epoch(self) -> int:
        return self.group.leader_epoch(self.log)

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins; without transactions the high watermark."""
        return self.log.high_watermark


class Topic:
    """One topic that clients can see."""

    __slots__ = ("config", "deleted", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: list[TopicPartition] = []
        self.deleted = False
        """True once it is gone, for those who still hold the object."""
        self.is_internal = name in INTERNAL_TOPICS
        """Is it the broker's own? Clients may read it, not write to it."""


INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, "__transaction_state", "__share_group_state"})


class Cluster:
    """Topics and partitions that can be served now."""

    def __init__(
        self,
        settings: Settings,
        image: ClusterImage,
        groups: Mapping[int, LogGroup],
        waiting_fetches: WaitingFetches,
    ) -> None:
        self.image = image
        self._started = settings
        self.settings = self._settings_in_force()
        """Those of the start and the changes made since."""
        self.on_settings: list[Callable[[Settings], None]] = []
        """Told whenever `settings` is another."""
        self._waiting_fetches = waiting_fetches
        self.groups = groups
        self.encoded: dict[tuple[object, ...], Encoded] = {}
        """Answers about all topics; emptied whenever a topic appears, grows or goes."""
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.partition_count = 0

    @property
    def cluster_id(self) -> str:
        cluster_id = self.image.cluster_id
        if cluster_id is None:
            raise RuntimeError("the cluster has no id before its first start is through")
        return cluster_id

    def topic(self, name: str | None) -> Topic | None:
        """The topic of this name, if clients can see it."""
        return self._by_name.get(name) if name is not None else None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, if clients can see it."""
        return self._by_id.get(topic_id)

    def topics(self) -> list[Topic]:
        """Every visible topic, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def partition(self, name: str, index: int) -> TopicPartition | None:
        """One partition by its topic's name."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def show(self, entry: TopicEntry, logs: Sequence[PartitionLog]) -> Topic:
        """Make a ready topic visible; `logs` are its partitions in order."""
        config, problems = restored_config(entry.overrides, self.settings)
        for problem in problems:
            log.warning("topic %s: %s; the default is used", entry.name, problem)
        topic = Topic(entry.name, entry.topic_id, config)
        self._add(topic, entry, logs)
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        return topic

    def grow(self, topic: Topic, entry: TopicEntry, logs: Sequence[PartitionLog]) -> None:
        """Make a visible topic's new partitions visible, too; `logs` are these, in order."""
        self._add(topic, entry, logs)

    def _add(self, topic: Topic, entry: TopicEntry, logs: Sequence[PartitionLog]) -> None:
        for index, partition_log in enumerate(logs, len(topic.partitions)):
            group = self.groups[entry.groups[index]]
            partition = TopicPartition(topic, index, group, partition_log)
            partition_log.on_advance.append(partial(self._waiting_fetches.wake, partition))
            topic.partitions.append(partition)
        self.partition_count += len(logs)
        self.encoded.clear()

    def reconfigure(self, topic: Topic) -> None:
        """Act on the topic's configuration as it is recorded now."""
        topic.config, _ = restored_config(self.image.topics[topic.topic_id].overrides, self.settings)
        self.encoded.clear()

    def reconfigure_all(self) -> None:
        """Act on the brokers' settings as they are recorded now: each topic follows where it sets nothing."""
        self.settings = self._settings_in_force()
        plain = topic_config({}, self.settings)
        for topic in self._by_name.values():
            overrides = self.image.topics[topic.topic_id].overrides
            topic.config = restored_config(overrides, self.settings)[0] if overrides else plain
        self.encoded.clear()
        for listener in self.on_settings:
            listener(self.settings)

    def _settings_in_force(self) -> Settings:
        changes = []
        for name in (WHOLE_CLUSTER, str(self._started.node_id)):
            kept, problems = still_valid(self._started, self.image.configs.get((BROKER_CONFIGS, name), {}))
            for problem in problems:
                log.warning("broker configuration: %s; it has no effect", problem)
            changes.append(kept)
        return in_force(self._started, *changes)

    def hide(self, topic: Topic) -> None:
        """Make a topic invisible: it is being deleted."""
        topic.deleted = True
        self._by_id.pop(topic.topic_id, None)
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self.partition_count -= len(topic.partitions)
        self.encoded.clear()
        for partition in topic.partitions:
            self._waiting_fetches.wake(partition)
