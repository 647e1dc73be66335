"""The segments that hold batches of one partition, in offset order."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence

from lockstep.storage.log.freed_segments import Run


def runs_of_sequences(sequences: Iterable[int], included: Container[int]) -> list[Run]:
    """Returns as few runs as possible of the included ones among rising sequences, and of no others."""
    grouped = itertools.groupby(sequences, included.__contains__)
    runs = [list(run) for is_wanted, run in grouped if is_wanted]
    return [(run[0], run[-1]) for run in runs]


class PartitionSpans:
    """The segments that hold batches of one partition, by the first base offset there."""

    __slots__ = ("_pair",)

    def __init__(self) -> None:
        # One attribute for both, replaced as one: a reader in another thread sees a consistent pair.
        self._pair = (array("q"), array("q"))

    @property
    def first_offset(self) -> int | None:
        """The lowest offset; None where there is none, as a reader in another thread may find it
        just before the partition goes from the table."""
        firsts = self._pair[0]
        return firsts[0] if firsts else None

    def sequences(self) -> list[int]:
        return self._pair[1].tolist()

    def add(self, first: int, sequence: int) -> None:
        firsts, sequences = self._pair
        sequences.append(sequence)
        firsts.append(first)

    def remove(self, runs: Sequence[Run]) -> bool:
        """Forget the segments of these runs; True when none is left."""
        firsts, sequences = self._pair
        for first, last in runs:
            start, end = bisect_left(sequences, first), bisect_right(sequences, last)
            if start < end:
                firsts, sequences = firsts[:start] + firsts[end:], sequences[:start] + sequences[end:]
        self._pair = firsts, sequences
        return not firsts

    def begin_at(self, sequence: int, first: int) -> None:
        """A segment's first offset is another now."""
        firsts, sequences = self._pair
        firsts = firsts[:]
        firsts[bisect_left(sequences, sequence)] = first
        self._pair = firsts, sequences

    def below(self, sequence: int) -> PartitionSpans:
        """Returns the segments before a sequence; this very object where that is all of them."""
        firsts, sequences = self._pair
        at = bisect_left(sequences, sequence)
        if at == len(sequences):
            return self
        spans = PartitionSpans()
        spans._pair = firsts[:at], sequences[:at]
        return spans

    def join_run(self, run: Run, first: int | None) -> PartitionSpans:
        """With the last segment of a run in the place of all of them, from its offset `first` on; None: it
        holds nothing of the partition."""
        firsts, sequences = self._pair
        start, end = bisect_left(sequences, run[0]), bisect_right(sequences, run[1])
        mine = (array("q"), array("q")) if first is None else (array("q", [first]), array("q", [run[1]]))
        changed = PartitionSpans()
        changed._pair = (
            firsts[:start] + mine[0] + firsts[end:],
            sequences[:start] + mine[1] + sequences[end:],
        )
        return changed

    def from_offset(self, offset: int) -> list[int]:
        """Sequences from the one that holds `offset` on; empty when it is below all of them."""
        firsts, sequences = self._pair
        at = bisect_right(firsts, offset) - 1
        return sequences[at:].tolist() if at >= 0 else []
