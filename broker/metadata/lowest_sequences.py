"""The lowest rejected sequence number of each producer that a partition does not know.

Kafka accepts any sequence of a producer that the partition does not know. If the first of several batches in
flight is rejected, Kafka takes the second one as the producer's beginning, and the retry of the first can
never be appended. A node therefore records each rejected batch of such a producer, whatever the reason, and
rejects later sequences until that batch has been appended.
Owns that memory. It is soft state of one node, in no log and no snapshot. Invariants: an older producer epoch
changes nothing, a newer one replaces the entry. A topic that does not exist on this node is kept under the
name or the id of the request; its entries move to the topic's id when it is created, and to its name when it
is deleted, as it may be created again.
Bounds: an entry expires `TTL_SECONDS` after the last rejection of its batch; beyond `MAX_ENTRIES` the topic
that was added first loses its oldest entry. Without an entry the rule is Kafka's.
Source: KAFKA-15591, KAFKA-14312, KAFKA-14920 (Kafka's VerificationStateEntry); decision 39.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS

TTL_SECONDS: Final = 60.0
"""LIMIT. The longest default request timeout among clients (librdkafka's socket.timeout.ms). After it no
batch that was in flight with the rejected one is outstanding, and retries come in order. A client that
dropped the rejected batch and kept its epoch can append again after this time."""
MAX_ENTRIES: Final = 10_000
"""LIMIT. Pairs of producer and partition, some 300 bytes each and a topic's name. An entry is removed when
its batch is appended, which for nearly all is the next retry."""
MAX_FORMER_NAMES: Final = 1_000
"""LIMIT. Deleted topics whose producers may still send the old topic id."""
_SEQUENCE_SPACE: Final = 1 << 31

TopicKey = str | bytes
"""A topic's id, or its name while no topic of that name exists on this node."""
_PartitionProducer = tuple[int, int]
"""Partition index and producer id."""


class _Entry(NamedTuple):
    producer_epoch: int
    lowest_sequence: int
    rejected_at: float
    """Clock seconds of the last rejection of that sequence."""

    def precedes(self, other: _Entry) -> bool:
        """True if this entry stays where both are of one producer: a newer epoch, or the lower sequence."""
        if self.producer_epoch != other.producer_epoch:
            return self.producer_epoch > other.producer_epoch
        return not is_later(self.lowest_sequence, other.lowest_sequence)


class LowestSequences:
    """The lowest rejected sequence of each producer in each partition that does not know it.

    Args:
        monotonic: a monotonic clock, in seconds.
    """

    __slots__ = ("_count", "_former_names", "_monotonic", "_topics")

    def __init__(self, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        self._monotonic = monotonic
        self._topics: dict[TopicKey, dict[_PartitionProducer, _Entry]] = {}
        """Both levels are in the order of insertion, oldest first."""
        self._count = 0
        self._former_names: dict[bytes, str] = {}

    def __len__(self) -> int:
        return self._count

    def note(self, topic: TopicKey, index: int, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Record that a batch with this base sequence was rejected, or is not appended yet."""
        if isinstance(topic, str) and len(topic) > MAX_NAME_CHARACTERS:
            return  # it can never be created
        entry = _Entry(producer_epoch, sequence, self._monotonic())
        existing = self._topics.get(topic, {}).get((index, producer_id))
        if existing is None:
            if self._count >= MAX_ENTRIES:
                self._evict_one()
        elif entry.rejected_at - existing.rejected_at < TTL_SECONDS and not entry.precedes(existing):
            return
        self._put(topic, (index, producer_id), entry)

    def lowest(self, topic: bytes, index: int, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence that must be appended before any later one of this epoch; None for no entry."""
        existing = self._topics.get(topic, {}).get((index, producer_id))
        if existing is None:
            return None
        if self._monotonic() - existing.rejected_at >= TTL_SECONDS:
            self.remove(topic, index, producer_id)
            return None
        return existing.lowest_sequence if existing.producer_epoch == producer_epoch else None

    def remove(self, topic: bytes, index: int, producer_id: int) -> None:
        """Remove an entry, as the partition knows the producer now by an appended batch or a marker."""
        entries = self._topics.get(topic)
        if entries is not None and entries.pop((index, producer_id), None) is not None:
            self._count -= 1
            if not entries:
                del self._topics[topic]

    def topic_created(self, name: str, topic_id: bytes) -> None:
        """Move the entries under a topic's name to its id."""
        self._move(name, topic_id)

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Move the entries of a topic to its name: its producers continue with the next topic of that
        name."""
        self._former_names.pop(topic_id, None)
        if len(self._former_names) >= MAX_FORMER_NAMES:
            del self._former_names[next(iter(self._former_names))]
        self._former_names[topic_id] = name
        self._move(topic_id, name)

    def former_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that was deleted; None for an unknown id, or after `MAX_FORMER_NAMES` more."""
        return self._former_names.get(topic_id)

    def _move(self, old: TopicKey, new: TopicKey) -> None:
        entries = self._topics.pop(old, None)
        if entries is None:
            return
        self._count -= len(entries)
        for key, entry in entries.items():
            existing = self._topics.get(new, {}).get(key)
            if existing is None or not existing.precedes(entry):
                self._put(new, key, entry)

    def _put(self, topic: TopicKey, key: _PartitionProducer, entry: _Entry) -> None:
        """Set an entry, as the newest of its topic."""
        entries = self._topics.setdefault(topic, {})
        self._count += key not in entries
        entries.pop(key, None)
        entries[key] = entry

    def _evict_one(self) -> None:
        """Remove the oldest entry of the topic that was added first."""
        topic, entries = next(iter(self._topics.items()))
        del entries[next(iter(entries))]
        self._count -= 1
        if not entries:
            del self._topics[topic]


def is_later(sequence: int, other: int) -> bool:
    """True if a sequence comes after another one; sequences wrap around at 2^31."""
    return 0 < (sequence - other) % _SEQUENCE_SPACE < _SEQUENCE_SPACE // 2
