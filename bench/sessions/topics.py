"""Topics of a broker that is measured, through a client library: made, led, counted.

Does not decide what they are called or made with (`Session.topic`).
"""

from __future__ import annotations

import time
from functools import cached_property

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.sessions.jobs import RoundFailed

LEADERS_S = 30.0


class Topics:
    """The topics of the broker at this address. Args: replication: the number of replicas."""

    def __init__(self, bootstrap: str, replication: int) -> None:
        self._bootstrap = bootstrap
        self._replication = replication

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Returns when every partition has a leader that knows it. RoundFailed."""
        new_topic = NewTopic(name, partitions, self._replication, config=config)
        try:
            for future in self._admin.create_topics([new_topic]).values():
                future.result(30)
        except KafkaException as error:
            raise RoundFailed(f"creating {name} failed: {error}") from error
        deadline = time.monotonic() + LEADERS_S
        while not (self.is_replicated(name) and self._leads(name, partitions)):
            if time.monotonic() > deadline:
                raise RoundFailed(f"{name} has no leaders after {LEADERS_S:.0f} s")
            time.sleep(0.02)

    def _partitions(self, name: str) -> list[tuple[int, int]]:
        """The present metadata: each partition's leader, or -1, and the number of replicas in sync; empty
        where the topic is unknown. RoundFailed."""
        try:
            found = self._admin.list_topics(name, timeout=30).topics.get(name)
        except KafkaException as error:
            raise RoundFailed(f"no metadata of {name}: {error}") from error
        parts = found.partitions if found else {}
        return [(parts[index].leader, len(parts[index].isrs)) for index in sorted(parts)]

    def is_replicated(self, name: str) -> bool:
        """True if every partition of it has a leader and all its replicas."""
        found = self._partitions(name)
        return bool(found) and all(leader >= 0 and in_sync >= self._replication for leader, in_sync in found)

    def leaders(self, name: str) -> list[int]:
        """The node that leads each partition, in order; -1 where there is none just now."""
        return [leader for leader, _ in self._partitions(name)]

    def _leads(self, name: str, partitions: int) -> bool:
        """True if the broker itself knows that it leads; Kafka's metadata may report it a moment earlier."""
        try:
            return self.end_offsets(name, partitions) == [0] * partitions
        except RoundFailed:
            return False

    def end_offsets(self, name: str, partitions: int) -> list[int]:
        """The log end offset of each partition. RoundFailed."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bench-offsets", "log_level": 0}
        )
        try:
            marks = [
                consumer.get_watermark_offsets(TopicPartition(name, index), timeout=30)
                for index in range(partitions)
            ]
        except KafkaException as error:
            raise RoundFailed(f"no end offsets of {name}: {error}") from error
        finally:
            consumer.close()
        return [high for _, high in marks]
