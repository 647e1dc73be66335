"""The cluster as this node knows it: its id, topics, their configurations and where partitions live.

Owns: `ClusterImage`, replayed from the metadata partition of group 0, and `Cluster`, which joins it with
the log groups of this node so that handlers find a partition by name or id.
Invariants: the image changes only in `replay`; a topic is visible from its `ready` record to its `delete`
record; a topic id is never used again. Values are small JSON objects: this is a cold path.
Does not: decide what may be created or deleted (`topics.py` does), or know clients.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.config import Settings
from broker.dynamic_config import in_force, still_valid
from broker.topic_config import TopicConfig, restored_config, topic_config
from protocol.records.record import iter_records
from storage.group import LogGroup
from storage.partition import PartitionLog
from storage.types import Buffer, CorruptLog, DirectoryEntry, NewerFormat

if TYPE_CHECKING:
    from broker.context import Encoded
    from broker.delayed import WaitingFetch, WaitingFetches

log = logging.getLogger("lockstep.metadata")

METADATA_GROUP: Final = 0
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""Kafka's own id for __cluster_metadata."""
METADATA_SECTION: Final = "cluster"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
CONSUMER_OFFSETS_TOPIC_ID: Final = bytes(15) + b"\x02"
"""Fixed, so that a log group can be told before it is opened what that topic is replayed into."""
STATE_VERSION: Final = 2
"""1 had no configurations but those of topics."""
BROKER_CONFIGS: Final = "broker"
GROUP_CONFIGS: Final = "group"
WHOLE_CLUSTER: Final = ""
"""The name that stands for all brokers."""

Command = dict[str, object]


class TopicState(Enum):
    """Where a topic is between the records that make and end it."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


class TopicEntry:
    """A topic as group 0 recorded it."""

    __slots__ = ("groups", "growing", "name", "overrides", "state", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, groups: list[int], overrides: dict[str, str], state: TopicState
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.groups = groups
        """The log group of each partition."""
        self.growing: list[int] = []
        """The log groups of partitions to come, which are being opened."""
        self.overrides = overrides
        self.state = state


def cluster_command(cluster_id: str) -> Command:
    """The cluster has this id, for ever."""
    return {"do": "cluster", "id": cluster_id}


def create_command(entry: TopicEntry) -> Command:
    """This topic is to be made: its partitions are being opened."""
    return {
        "do": "create",
        "topic": entry.name,
        "id": entry.topic_id.hex(),
        "groups": entry.groups,
        "configs": entry.overrides,
    }


def ready_command(topic_id: bytes) -> Command:
    """Every partition of the topic is open: clients may see it."""
    return {"do": "ready", "id": topic_id.hex()}


def delete_command(topic_id: bytes) -> Command:
    """The topic is no more for clients; its partitions are being closed."""
    return {"do": "delete", "id": topic_id.hex()}


def deleted_command(topic_id: bytes) -> Command:
    """Every partition of the topic is closed; nothing of it is left."""
    return {"do": "deleted", "id": topic_id.hex()}


def grow_command(topic_id: bytes, groups: list[int]) -> Command:
    """The topic is to get further partitions, in these log groups; none: it is not to grow after all."""
    return {"do": "grow", "id": topic_id.hex(), "groups": groups}


def grown_command(topic_id: bytes) -> Command:
    """Every further partition is open: clients may see them."""
    return {"do": "grown", "id": topic_id.hex()}


def topic_configs_command(topic_id: bytes, overrides: Mapping[str, str]) -> Command:
    """This is all that the topic sets itself from now on."""
    return {"do": "topic_configs", "id": topic_id.hex(), "configs": dict(overrides)}


def configs_command(kind: str, name: str, texts: Mapping[str, str]) -> Command:
    """This is all that is configured for a broker (or all of them) or a group from now on."""
    return {"do": "configs", "of": kind, "name": name, "configs": dict(texts)}


def producer_ids_command(next_producer_id: int) -> Command:
    """Producer ids below this one have been handed to some node."""
    return {"do": "producer_ids", "next": next_producer_id}


class ClusterImage:
    """What the metadata records say. A `StateMachine` of group 0."""

    __slots__ = ("cluster_id", "configs", "next_producer_id", "topics")

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.next_producer_id = 0
        self.topics: dict[bytes, TopicEntry] = {}
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        """What is configured for brokers and groups, by kind and name; nothing where nothing is."""

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one committed batch of commands. Raises CorruptLog for a command it does not know."""
        for record in iter_records(payload):
            self._apply(json.loads(bytes(record.value or b"{}")))

    def _apply(self, command: Command) -> None:
        match command:
            case {"do": "cluster", "id": str(cluster_id)}:
                if self.cluster_id is None:
                    self.cluster_id = cluster_id
            case {
                "do": "create",
                "topic": str(name),
                "id": str(topic_id),
                "groups": groups,
                "configs": configs,
            }:
                made = TopicEntry(
                    name, bytes.fromhex(topic_id), _numbers(groups), _texts(configs), TopicState.CREATING
                )
                self.topics[made.topic_id] = made
            case {"do": "configs", "of": str(kind), "name": str(name), "configs": configs}:
                self.configs.pop((kind, name), None)
                if _texts(configs):
                    self.configs[kind, name] = _texts(configs)
            case {"do": "producer_ids", "next": int(next_producer_id)}:
                self.next_producer_id = max(self.next_producer_id, next_producer_id)
            case {"do": "deleted", "id": str(topic_id)}:
                self.topics.pop(bytes.fromhex(topic_id), None)
            case {"id": str(topic_id)}:
                changed = self.topics.get(bytes.fromhex(topic_id))
                _apply_to_topic(command, changed)
            case _:
                raise CorruptLog(f"metadata command not understood: {command!r}")

    def snapshot(self, time_ms: int) -> bytes:
        """The whole image, as JSON."""
        state = {
            "version": STATE_VERSION,
            "cluster_id": self.cluster_id,
            "next_producer_id": self.next_producer_id,
            "topics": [
                [entry.name, entry.topic_id.hex(), entry.groups, entry.overrides, entry.state.value]
                for entry in self.topics.values()
            ],
            "growing": {
                entry.topic_id.hex(): entry.growing for entry in self.topics.values() if entry.growing
            },
            "configs": [[kind, name, texts] for (kind, name), texts in self.configs.items()],
        }
        return json.dumps(state, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        """Take over a snapshot; empty bytes are the empty image. NewerFormat."""
        self.cluster_id = None
        self.next_producer_id = 0
        self.topics = {}
        self.configs = {}
        if not data:
            return
        state = json.loads(data)
        if state["version"] > STATE_VERSION:
            raise NewerFormat(f"cluster state of version {state['version']}, known up to {STATE_VERSION}")
        self.cluster_id = state["cluster_id"]
        self.next_producer_id = state["next_producer_id"]
        for name, topic_id, groups, overrides, topic_state in state["topics"]:
            entry = TopicEntry(name, bytes.fromhex(topic_id), groups, overrides, TopicState(topic_state))
            self.topics[entry.topic_id] = entry
        for growing_id, added in state.get("growing", {}).items():
            self.topics[bytes.fromhex(growing_id)].growing = added
        for kind, name, texts in state.get("configs", ()):
            self.configs[kind, name] = texts


def _apply_to_topic(command: Command, topic: TopicEntry | None) -> None:
    """Apply what is said of one topic; of one that is gone, nothing matters any more."""
    if topic is None:
        return
    match command:
        case {"do": "ready"}:
            topic.state = TopicState.READY
        case {"do": "delete"}:
            topic.state = TopicState.DELETING
        case {"do": "grow", "groups": groups}:
            topic.growing = _numbers(groups)
        case {"do": "grown"}:
            topic.groups, topic.growing = topic.groups + topic.growing, []
        case {"do": "topic_configs", "configs": configs}:
            topic.overrides = _texts(configs)
        case _:
            raise CorruptLog(f"metadata command not understood: {command!r}")


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise CorruptLog(f"not a list of numbers in a metadata command: {value!r}")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise CorruptLog(f"not a table of texts in a metadata command: {value!r}")
    return value


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
