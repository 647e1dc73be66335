"""Who waits for which entry: callbacks bound to (index, term), told once.

Invariant: success is said only where the entry that was committed at the index is the one that was waited
for. Where another term's entry is committed there, or the entry is cut from this log, the waiter gets
`NotLeader`: it may ask again. Waiters of one entry are told in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from storage.types import NotLeader

Waiter = Callable[[BaseException | None], None]
Tell = Callable[[Sequence[Waiter], BaseException | None], None]


def _tell(waiters: Sequence[Waiter], error: BaseException | None) -> None:
    for waiter in waiters:
        waiter(error)


class Waiters:
    """The waiters of one group, by rising index. `tell` calls some; what one raises it may keep to itself."""

    __slots__ = ("_tell", "_waiting")

    def __init__(self, tell: Tell = _tell) -> None:
        self._tell = tell
        self._waiting: deque[tuple[int, int, list[Waiter]]] = deque()

    def add(self, index: int, term: int, waiters: list[Waiter]) -> None:
        """Tell these once the entry (index, term), the newest so far, is committed."""
        if self._waiting and self._waiting[-1][:2] == (index, term):
            self._waiting[-1][2].extend(waiters)
        else:
            self._waiting.append((index, term, waiters))

    def committed(self, index: int, term_at: Callable[[int], int | None]) -> None:
        """Everything up to `index` is committed and applied; `term_at` knows the committed entries' terms."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= index:
            at, term, waiters = waiting.popleft()
            error = None
            if term_at(at) != term:
                error = NotLeader(f"entry {at} of term {term} is not known to be the one that was committed")
            self._tell(waiters, error)

    def truncated(self, last_index: int) -> None:
        """The entries after `last_index` are cut from this log: their outcome is not ours to say."""
        lost = []
        while self._waiting and self._waiting[-1][0] > last_index:
            lost.append(self._waiting.pop())
        for at, term, waiters in reversed(lost):
            self._tell(waiters, NotLeader(f"entry {at} of term {term} was cut by another leader"))

    def fail(self, error: BaseException) -> None:
        """Nothing will be committed here any more."""
        waiting, self._waiting = self._waiting, deque()
        for _, _, waiters in waiting:
            self._tell(waiters, error)
