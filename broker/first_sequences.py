"""With which sequence a producer begins in a partition that does not know it: the lowest that was refused.

Kafka takes any sequence of a producer that it does not know. Where the first batch of several in flight is
refused, the one behind it would be taken for the beginning, and the first, sent again, could never be
written. A node therefore remembers each batch of such a producer that it refuses, whatever the reason, and
takes none behind it before it has come again. Owns that memory, which is soft state of one node: it is in no
log and no snapshot. Invariants: an older epoch changes nothing, a newer one begins anew; a topic that this
node does not know is kept by the name or the id that the request gave, and its entries follow the topic when
it appears, or goes and comes back under another id.
Bounds: an entry is dropped `KEPT_SECONDS` after the last refusal of its batch, and the oldest make room for
new ones beyond `MAX_ENTRIES`; where there is no entry, the rule is Kafka's.
Source: KAFKA-15591, KAFKA-14312, KAFKA-14920 (Kafka's VerificationStateEntry); decision 39.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

KEPT_SECONDS: Final = 60.0
"""LIMIT. The longest default timeout of a request among clients (librdkafka's socket.timeout.ms). By then
what was in flight beside the refused batch has been answered or given up, and clients send again in order.
A client that has given the batch up, and kept its epoch, goes on after so long."""
MAX_ENTRIES: Final = 10_000
"""LIMIT. Producers in partitions, some 300 bytes each beside a topic's name. Nearly all leave at once, when
the batch is taken."""
MAX_FORMER_NAMES: Final = 1_000
"""LIMIT. Deleted topics whose producers may still write by the former id."""
MAX_NAME_CHARACTERS: Final = 249
"""Kafka's limit; no topic will ever have a longer name."""
_SEQUENCE_SPACE: Final = 1 << 31

TopicKey = str | bytes
"""A topic's id, or its name where no topic of that name is visible."""
_Entry = tuple[int, int, float]
"""Producer epoch, lowest sequence, and when it was refused last."""


class FirstSequences:
    """The lowest refused sequence of each producer in each partition where it is not known.

    Args:
        seconds: a monotonic clock.
    """

    __slots__ = ("_count", "_former_names", "_seconds", "_topics")

    def __init__(self, seconds: Callable[[], float] = lambda: 0.0) -> None:
        self._seconds = seconds
        self._topics: dict[TopicKey, dict[tuple[int, int], _Entry]] = {}
        """Topic -> (partition's index, producer id) -> entry, oldest first."""
        self._count = 0
        self._former_names: dict[bytes, str] = {}

    def __len__(self) -> int:
        return self._count

    def note(self, topic: TopicKey, index: int, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """A batch of this sequence was refused, or is not taken yet."""
        if isinstance(topic, str) and len(topic) > MAX_NAME_CHARACTERS:
            return
        now = self._seconds()
        known = self._topics.get(topic, {}).get((index, producer_id))
        if known is not None and now - known[2] < KEPT_SECONDS:
            if producer_epoch < known[0]:
                return
            if producer_epoch == known[0] and is_later(sequence, known[1]):
                return
        if known is None and self._count >= MAX_ENTRIES:
            self._drop_oldest()
        self._put(topic, (index, producer_id), (producer_epoch, sequence, now))

    def lowest(self, topic: bytes, index: int, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence that must come before any later one; None where there is none of this epoch."""
        known = self._topics.get(topic, {}).get((index, producer_id))
        if known is None:
            return None
        if self._seconds() - known[2] >= KEPT_SECONDS:
            self.begun(topic, index, producer_id)
            return None
        return known[1] if known[0] == producer_epoch else None

    def begun(self, topic: bytes, index: int, producer_id: int) -> None:
        """The producer is known there from now on, by a batch or by a marker."""
        entries = self._topics.get(topic)
        if entries is not None and entries.pop((index, producer_id), None) is not None:
            self._count -= 1
            if not entries:
                del self._topics[topic]

    def topic_shown(self, name: str, topic_id: bytes) -> None:
        """A topic is visible from now on: what was refused under its name is kept under its id."""
        self._move(name, topic_id)

    def topic_hidden(self, name: str, topic_id: bytes) -> None:
        """A topic is gone; another of its name may come, to which its producers go on writing."""
        self._former_names.pop(topic_id, None)
        if len(self._former_names) >= MAX_FORMER_NAMES:
            del self._former_names[next(iter(self._former_names))]
        self._former_names[topic_id] = name
        self._move(topic_id, name)

    def former_name(self, topic_id: bytes) -> str | None:
        """The name of a deleted topic."""
        return self._former_names.get(topic_id)

    def _move(self, old: TopicKey, new: TopicKey) -> None:
        entries = self._topics.pop(old, None)
        if entries is None:
            return
        self._count -= len(entries)
        for place, entry in entries.items():
            known = self._topics.get(new, {}).get(place)
            if known is not None and (
                known[0] > entry[0] or (known[0] == entry[0] and not is_later(known[1], entry[1]))
            ):
                continue
            self._put(new, place, entry)

    def _put(self, topic: TopicKey, place: tuple[int, int], entry: _Entry) -> None:
        entries = self._topics.setdefault(topic, {})
        self._count += place not in entries
        entries.pop(place, None)
        entries[place] = entry

    def _drop_oldest(self) -> None:
        """One of the topic that was noted first."""
        topic, entries = next(iter(self._topics.items()))
        del entries[next(iter(entries))]
        self._count -= 1
        if not entries:
            del self._topics[topic]


def is_later(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one; they wrap around."""
    return 0 < (sequence - other) % _SEQUENCE_SPACE < _SEQUENCE_SPACE // 2
