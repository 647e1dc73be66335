"""A consumer group that records alone make, and its heartbeats without a coordinator or a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import read_key
from lockstep.broker.groups.consumer.heartbeat import HeartbeatContext, HeartbeatResult, heartbeat
from lockstep.broker.groups.group_records import Record
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.broker.groups.consumer.fakes import FakeTopics

Kind = tuple[int, str, bool]
"""A record's kind, the member's id or the regular expression of its key, and whether it has a value."""


def kinds_of(records: Iterable[Record]) -> list[Kind]:
    """The records in short."""
    found = []
    for key, value in records:
        kind = int.from_bytes(key[:2], "big")
        found.append((kind, read_key(kind, key)[1], value is not None))
    return found


def replay(group: ConsumerGroup, records: Iterable[Record]) -> None:
    for key, value in records:
        kind = int.from_bytes(key[:2], "big")
        group_id, name = read_key(kind, key)
        assert group_id == group.group_id
        group.apply(kind, key, name, value)


def group_of(*records: Record) -> ConsumerGroup:
    """The group "g" after these records."""
    group = ConsumerGroup("g")
    replay(group, records)
    return group


def id_of(number: int) -> bytes:
    """The id of the topic that `FakeTopics` made as this one, from 1."""
    return number.to_bytes(16, "big")


class HeartbeatWorld:
    """A group, its topics and a clock; each heartbeat's records are replayed at once."""

    def __init__(
        self, topics: FakeTopics, assignors: Sequence[str] = ("uniform", "range"), max_size: int = 9
    ) -> None:
        self.topics = topics
        self.group = ConsumerGroup("g")
        self.now_ms = 1_000_000
        self._assignors = assignors
        self._max_size = max_size
        self._seen_changes = -1

    def beat(
        self, member: str, epoch: int, owned: Mapping[bytes, Iterable[int]] | None = None, **more: Any
    ) -> HeartbeatResult:
        reported = None
        if owned is not None:
            reported = [
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in owned.items()
            ]
        return self.send(member, epoch, reported, **more)

    def send(
        self, member: str, epoch: int, reported: list[TopicPartitions] | None, **more: Any
    ) -> HeartbeatResult:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, topic_partitions=reported, **more
        )
        context = HeartbeatContext(
            topics=self.topics,
            now_ms=self.now_ms,
            client_id="client",
            client_host="/host",
            heartbeat_interval_ms=5_000,
            assignment_interval_ms=1_000,
            max_size=self._max_size,
            assignors=self._assignors,
            is_metadata_new=self._seen_changes != self.topics.changes,
        )
        result = heartbeat(self.group, request, context)
        self._seen_changes = self.topics.changes
        replay(self.group, result.records)
        return result

    def join(self, member: str, names: Sequence[str] | None = ("t",), **more: Any) -> HeartbeatResult:
        subscription = None if names is None else list(names)
        timeout_ms = more.pop("rebalance_timeout_ms", 60_000)
        return self.beat(
            member, 0, {}, rebalance_timeout_ms=timeout_ms, subscribed_topic_names=subscription, **more
        )


def told(result: HeartbeatResult) -> dict[bytes, list[int]] | None:
    """The partitions of a response; None where it has none."""
    assignment = result.response.assignment
    if assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in assignment.topic_partitions}
