"""Term and size of each entry of the log above the checkpoint; no payloads.

Terms are kept as runs, since they only rise along a log: a look-up is a bisection over a handful of runs.
Sizes are kept as running totals, eight bytes per entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right


class TermIndex:
    """Runs of (first index, term), ascending in both, and where each entry ends when all are laid end to end.

    The entry at `base_index` is the last one the checkpoint covers; its term is known, those below are not.
    """

    __slots__ = ("_ends", "_starts", "_terms", "base_index", "last_index")

    def __init__(self, base_index: int = 0, base_term: int = 0) -> None:
        self.base_index = base_index
        self.last_index = base_index
        self._starts = [base_index]
        self._terms = [base_term]
        self._ends = array("q", [0])
        """Total bytes up to each entry from `base_index` on."""

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def append(self, index: int, term: int, size: int = 0) -> None:
        """Record the next entry. Raises ValueError for a gap or a term that goes back."""
        if index != self.last_index + 1:
            raise ValueError(f"entry {index} does not follow {self.last_index}")
        if term != self._terms[-1]:
            if term < self._terms[-1]:
                raise ValueError(f"term {term} of entry {index} is older than {self._terms[-1]}")
            self._starts.append(index)
            self._terms.append(term)
        self._ends.append(self._ends[-1] + size)
        self.last_index = index

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None where it is below the base or beyond the end."""
        if index == self.last_index:
            return self._terms[-1]
        if index < self.base_index or index > self.last_index:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def trim(self, base_index: int) -> None:
        """Forget the entries below `base_index`, which a checkpoint covers now.

        Raises ValueError for an index beyond the end; one at or below the base changes nothing.
        """
        if base_index <= self.base_index:
            return
        if base_index > self.last_index:
            raise ValueError(f"no entry {base_index}, the last is {self.last_index}")
        run = bisect_right(self._starts, base_index) - 1
        self._starts = [base_index, *self._starts[run + 1 :]]
        self._terms = self._terms[run:]
        del self._ends[: base_index - self.base_index]
        self.base_index = base_index

    def truncate(self, last_index: int) -> None:
        """Forget the entries above `last_index`.

        Raises ValueError for an index below the base; one at or beyond the end changes nothing.
        """
        if last_index >= self.last_index:
            return
        if last_index < self.base_index:
            raise ValueError(f"entry {last_index} is below the checkpoint at {self.base_index}")
        run = bisect_right(self._starts, last_index)
        del self._starts[run:], self._terms[run:]
        del self._ends[last_index + 1 - self.base_index :]
        self.last_index = last_index

    def size_between(self, first: int, last: int) -> int:
        """Bytes of the entries from `first` to `last`, both included and above the base; none are 0."""
        if first > last:
            return 0
        base = self.base_index
        return self._ends[last - base] - self._ends[first - 1 - base]

    def last_within(self, first: int, max_bytes: int) -> int:
        """The last entry of those from `first` on that fit `max_bytes` together, `first` itself at least."""
        position = first - self.base_index
        fits = bisect_right(self._ends, self._ends[position - 1] + max_bytes, position) - 1
        return self.base_index + max(fits, position)

    def runs_between(self, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """(first index, term) of each run within `first` to `last`, both included and above the base."""
        if first > last:
            return ()
        run = bisect_right(self._starts, first) - 1
        if run + 1 == len(self._starts):
            return ((first, self._terms[-1]),)
        runs = [(first, self._terms[run])]
        for start, term in zip(self._starts[run + 1 :], self._terms[run + 1 :], strict=True):
            if start > last:
                break
            runs.append((start, term))
        return tuple(runs)

    def last_of_term(self, max_term: int, max_index: int) -> int:
        """The last entry up to `max_index` whose term is at most `max_term`; -1 where the base is newer."""
        run = bisect_right(self._terms, max_term) - 1
        if run < 0 or max_index < self.base_index:
            return -1
        end = self._starts[run + 1] - 1 if run + 1 < len(self._starts) else self.last_index
        return min(end, max_index)
