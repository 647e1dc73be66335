"""Offsets committed within transactions that have not ended yet (KIP-98).

Owns: `PendingOffsets`, part of `GroupsState`: what would hold if a transaction committed. A transaction is
one producer's in one partition of `__consumer_offsets`, for each partition gets a marker of its own.
Invariants: of two commits of one offset the later in the log wins, whenever its transaction ends: one that is
older than what holds already is superseded, and still tells readers to wait. A tombstone ends what is pending
of its key, in every transaction.
Does not: know what is committed (`group_state.py`). Source: Kafka's OffsetMetadataManager.replay,
replayEndTransactionMarker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from lockstep.broker.groups.group_records import CommittedOffset

Place = tuple[str, int]
"""Topic and partition."""
OffsetTransaction = tuple[int, int]
"""The partition's local id, and the producer id."""
_NOTHING: Final[frozenset[Place]] = frozenset()


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
        self._by_group: dict[str, dict[OffsetTransaction, dict[Place, Pending]]] = {}
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

    def of(self, group_id: str) -> frozenset[Place]:
        """A group's offsets that are not stable."""
        found = self._by_group.get(group_id)
        return _NOTHING if found is None else frozenset().union(*found.values())

    def add(self, transaction: OffsetTransaction, group_id: str, place: Place, pending: Pending) -> bool:
        """A commit within a transaction; was there none of this place in it before?"""
        places = self._by_group.setdefault(group_id, {}).setdefault(transaction, {})
        self._groups_of.setdefault(transaction, {})[group_id] = None
        is_new = place not in places
        places[place] = pending
        return is_new

    def supersede(self, group_id: str, place: Place, before: int | None = None) -> None:
        """A commit of this offset holds now, at `before` in the partition (None: behind all that is here)."""
        for places in self._by_group.get(group_id, {}).values():
            pending = places.get(place)
            if pending is not None and (before is None or pending.at < before):
                places[place] = pending._replace(committed=None)

    def drop(self, group_id: str, place: Place) -> int:
        """The offset is deleted; how many commits of it were pending."""
        found = self._by_group.get(group_id, {})
        of_place = [transaction for transaction, places in found.items() if place in places]
        for transaction in of_place:
            del found[transaction][place]
            if not found[transaction]:
                self._forget(transaction, group_id)
        return len(of_place)

    def end(self, transaction: OffsetTransaction) -> list[tuple[str, Place, Pending]]:
        """A transaction ends: what was pending in it, of which this knows nothing any more."""
        ended = []
        for group_id in list(self._groups_of.get(transaction, ())):
            for place, pending in self._by_group[group_id][transaction].items():
                ended.append((group_id, place, pending))
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
            for (local_id, producer_id), places in transactions.items():
                for (topic, index), (at, committed) in places.items():
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
