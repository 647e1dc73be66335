"""Topics and partitions for handlers that are tested without a broker: real partitions over a scripted log
group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.api import RequestHeader
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer, ReadResult

SETTINGS = from_texts({"log.dirs": "unused"})


def header_of(api_key: int, api_version: int) -> RequestHeader:
    return RequestHeader(api_key, api_version, 1, "a client")


class FakeGroup:
    """A log group of batches that the test gives; each of a log starts at the offset that it is given for."""

    group_id = 1
    is_leader = True
    has_lease = True
    term = 3
    leader_id = 1
    cold = False
    """True where the batches have to come from the disk."""

    def __init__(self) -> None:
        self.partitions: dict[int, PartitionLog] = {}
        self.batches: dict[int, list[tuple[int, Buffer]]] = {}
        self.log: Any = SimpleNamespace()
        self.raft = SimpleNamespace(leader_state="a candidate for leadership", last_index=0)
        self.applied_index = self.recovered_index = 0
        self.reads: list[tuple[int, int, int]] = []
        """The partition's number, offset and largest size of each read."""

    def leader_epoch(self, log: PartitionLog) -> int:
        return self.term + log.epoch_base

    def read(self, log: PartitionLog, offset: int, max_bytes: int, end: int | None = None) -> ReadResult:
        self.reads.append((log.local_id, offset, max_bytes))
        return ReadResult([], 0, cold=True) if self.cold else self._read(log, offset, max_bytes, end)

    async def read_cold(
        self, log: PartitionLog, offset: int, max_bytes: int, end: int | None = None
    ) -> ReadResult:
        return self._read(log, offset, max_bytes, end)

    def _read(self, log: PartitionLog, offset: int, max_bytes: int, end: int | None) -> ReadResult:
        """Whole batches from the one with the offset on, at least one, below the end."""
        found: list[Buffer] = []
        total, next_offset = 0, offset
        batches = self.batches.get(log.local_id, [])
        starts = [start for start, _ in batches] + [log.next_offset]
        for (start, data), following in zip(batches, starts[1:], strict=True):
            if following <= offset or (end is not None and start >= end):
                continue
            if found and total + len(data) > max_bytes:
                break
            found.append(data)
            total += len(data)
            next_offset = following
        return ReadResult(found, total, next_offset=next_offset)


class FakeCluster:
    """The topics that a test has made."""

    def __init__(self) -> None:
        self.settings = SETTINGS
        self.group = FakeGroup()
        self._topics: dict[str, Topic] = {}

    def add(self, name: str, partitions: int = 1, **overrides: str) -> Topic:
        """Add a topic, whose partitions are empty."""
        texts = {key.replace("_", "."): text for key, text in overrides.items()}
        topic = Topic(name, name.encode().ljust(16, b"\0"), topic_config(texts, SETTINGS))
        for index in range(partitions):
            partition = Partition(topic, index, cast(LogGroup, self.group))
            number = 1 + len(self.group.partitions)
            partition.log = self.group.partitions[number] = PartitionLog(number, topic.topic_id, index)
            topic.partitions.append(partition)
        self._topics[name] = topic
        return topic

    def write(self, name: str, *batches: bytes, index: int = 0) -> Partition:
        """Append batches of which each has as many records as its last offset delta says."""
        partition = self._topics[name].partitions[index]
        log = partition.log
        for each in batches:
            data = bytearray(each)
            data[:8] = log.next_offset.to_bytes(8, "big")
            self.group.batches.setdefault(log.local_id, []).append((log.next_offset, bytes(data)))
            log.next_offset += 1 + int.from_bytes(data[23:27], "big")
        log.high_watermark = log.next_offset
        return partition

    def topic(self, name: str | None) -> Topic | None:
        return self._topics.get(name or "")

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def __call__(self) -> MetadataCache:
        """As handlers take it."""
        return cast(MetadataCache, self)
