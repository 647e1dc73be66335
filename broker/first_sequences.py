"""With which sequence a producer begins in a partition that does not know it: the lowest that it has tried.

Kafka takes any sequence of a producer that it does not know. Where the first batch of several on their way
was refused, the one behind it would be taken for the beginning, and the first, sent again, could never be
written. Owns what is remembered of such batches, in memory alone: it is no state of the log. Invariants:
bounded, the oldest go; an older epoch changes nothing, a newer one begins anew.
Source: KAFKA-14920, Kafka's VerificationStateEntry.
"""

from __future__ import annotations

from typing import Final

MOST_PLACES: Final = 10_000
"""LIMIT. Producers in partitions, some 300 bytes each; whoever is taken, as nearly all are at once, goes."""


class FirstSequences:
    """Of producers and partitions where nothing of them is known."""

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        self._lowest: dict[tuple[int, int], tuple[int, int]] = {}
        """(partition's number, producer id) -> (producer's epoch, lowest sequence), oldest first."""

    def __len__(self) -> int:
        return len(self._lowest)

    def note(self, partition: int, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """A batch of this sequence was not taken, or not yet."""
        place = partition, producer_id
        known = self._lowest.get(place)
        if known is None:
            if len(self._lowest) >= MOST_PLACES:
                del self._lowest[next(iter(self._lowest))]
        elif producer_epoch < known[0] or (producer_epoch == known[0] and sequence >= known[1]):
            return
        self._lowest[place] = producer_epoch, sequence

    def lowest(self, partition: int, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence that is to come before any higher one; None where none of this epoch was tried."""
        known = self._lowest.get((partition, producer_id))
        return known[1] if known is not None and known[0] == producer_epoch else None

    def begun(self, partition: int, producer_id: int) -> None:
        """The producer is known there from now on, by a batch or by a marker."""
        self._lowest.pop((partition, producer_id), None)

    def clear(self) -> None:
        """Nothing of it counts any more."""
        self._lowest.clear()
