"""Which term wrote which index, for the part of the log above the checkpoint; no payloads.

Kept as runs, since terms only rise along a log: a look-up is a bisection over a handful of runs.
"""

from __future__ import annotations

from bisect import bisect_right


class TermIndex:
    """Runs of (first index, term), ascending in both.

    The entry at `base_index` is the last one the checkpoint covers; its term is known, those below are not.
    """

    __slots__ = ("_starts", "_terms", "base_index", "last_index")

    def __init__(self, base_index: int = 0, base_term: int = 0) -> None:
        self.base_index = base_index
        self.last_index = base_index
        self._starts = [base_index]
        self._terms = [base_term]

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def append(self, index: int, term: int) -> None:
        """Record the next entry. Raises ValueError for a gap or a term that goes back."""
        if index != self.last_index + 1:
            raise ValueError(f"entry {index} does not follow {self.last_index}")
        if term != self._terms[-1]:
            if term < self._terms[-1]:
                raise ValueError(f"term {term} of entry {index} is older than {self._terms[-1]}")
            self._starts.append(index)
            self._terms.append(term)
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
        self.base_index = base_index
