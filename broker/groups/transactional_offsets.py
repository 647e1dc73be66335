"""Offsets committed within transactions that have not ended yet (KIP-98).

Owns: `PendingOffsets`, part of `GroupsState`: what would hold if a transaction committed. A transaction is
one producer's in one partition of `__consumer_offsets`, for each partition gets a marker of its own.
Invariants: of two commits of one offset the later in the log wins, whenever its transaction ends: one that is
older than what holds already is superseded, and still makes readers wait. A tombstone ends what is pending
of its key, in every transaction.
Does not: know what is committed (`group_state.py`). Source: Kafka's OffsetMetadataManager.replay,
replayEndTransactionMarker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from lockstep.broker.groups.group_records import CommittedOffset

TopicPartition = tuple[str, int]
"""Topic and partition."""
OffsetTransaction = tuple[int, int]
"""The partition's local id, and the producer id."""
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class Pending(NamedTuple):
    """One offset that waits for the end of its transaction."""

    at: int
    """Where in the partition it is."""
    committed: CommittedOffset | None
    """None: superseded, a later commit holds whatever becomes of this one."""


class PendingOffsets:
    """Empty at first."""

    __slots__ = ("_by_group", "_groups_of")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[OffsetTransaction, dict[TopicPartition, Pending]]] = {}
        self._groups_of: dict[OffsetTransaction, dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self._by_group == other._by_group

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group

    def group_ids(self) -> Iterable[str]:
        """The groups with something pending."""
        return self._by_group

    def of(self, group_id: str) -> frozenset[TopicPartition]:
        """A group's offsets that are not stable."""
        found = self._by_group.get(group_id)
        return _NOTHING if found is None else frozenset().union(*found.values())

    def add(
        self, transaction: OffsetTransaction, group_id: str, topic_partition: TopicPartition, pending: Pending
    ) -> bool:
        """A commit within a transaction; True if the transaction had none of this partition before."""
        topic_partitions = self._by_group.setdefault(group_id, {}).setdefault(transaction, {})
        self._groups_of.setdefault(transaction, {})[group_id] = None
        is_new = topic_partition not in topic_partitions
        topic_partitions[topic_partition] = pending
        return is_new

    def supersede(self, group_id: str, topic_partition: TopicPartition, before: int | None = None) -> None:
        """A commit of this offset holds now, at `before` in the partition (None: behind all that is here)."""
        for topic_partitions in self._by_group.get(group_id, {}).values():
            pending = topic_partitions.get(topic_partition)
            if pending is not None and (before is None or pending.at < before):
                topic_partitions[topic_partition] = pending._replace(committed=None)

    def drop(self, group_id: str, topic_partition: TopicPartition) -> int:
        """The offset is deleted; how many commits of it were pending."""
        found = self._by_group.get(group_id, {})
        containing = [
            transaction
            for transaction, topic_partitions in found.items()
            if topic_partition in topic_partitions
        ]
        for transaction in containing:
            del found[transaction][topic_partition]
            if not found[transaction]:
                self._forget(transaction, group_id)
        return len(containing)

    def end(self, transaction: OffsetTransaction) -> list[tuple[str, TopicPartition, Pending]]:
        """A transaction ends: what was pending in it, of which this knows nothing any more."""
        ended = []
        for group_id in list(self._groups_of.get(transaction, ())):
            for topic_partition, pending in self._by_group[group_id][transaction].items():
                ended.append((group_id, topic_partition, pending))
            self._forget(transaction, group_id)
        return ended

    def _forget(self, transaction: OffsetTransaction, group_id: str) -> None:
        transactions = self._by_group[group_id]
        del transactions[transaction]
        if not transactions:
            del self._by_group[group_id]
        groups = self._groups_of[transaction]
        del groups[group_id]
        if not groups:
            del self._groups_of[transaction]

    def rows(self) -> Iterator[list[object]]:
        """All of it, for a snapshot in JSON."""
        for group_id, transactions in self._by_group.items():
            for (local_id, producer_id), topic_partitions in transactions.items():
                for (topic, index), (at, committed) in topic_partitions.items():
                    values = None if committed is None else [*committed[:-1], committed.topic_id.hex()]
                    yield [local_id, producer_id, group_id, topic, index, at, values]

    def restore(self, rows: Iterable[list[Any]]) -> Iterator[str]:
        """Take over a snapshot's rows; the topic of each."""
        for local_id, producer_id, group_id, topic, index, at, values in rows:
            committed = None
            if values is not None:
                *numbers, topic_id = values
                committed = CommittedOffset._make([*numbers, bytes.fromhex(topic_id)])
            self.add((local_id, producer_id), group_id, (topic, index), Pending(at, committed))
            yield topic
