"""Callbacks that wait for the commit of an entry (index, term), each called once.

Invariant: a waiter succeeds only where the entry that was committed at the index is the one that it waits
for. Where another term's entry is committed there, or the entry is truncated from this log, the waiter gets
`NotLeader`: its caller may retry. Waiters of one entry are called in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from lockstep.storage.types import NotLeader

T = TypeVar("T")
Waiter = Callable[[BaseException | None], None]
Notify = Callable[[Sequence[Waiter], BaseException | None], None]


class OpenWaiters:
    """The waiters for the entry that the open frames become: its index is not known yet."""

    __slots__ = ("_shared", "_waiters")

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []
        self._shared: list[Any] | None = None
        """The items of the waiter that `share` has added."""

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def add(self, waiter: Waiter) -> None:
        """Adds one."""
        self._waiters.append(waiter)

    def share(self, on_commit: Callable[[list[T], BaseException | None], None], item: T) -> None:
        """Adds an item to one waiter, which calls `on_commit` with all of them. Args: on_commit: the same
        in each call."""
        if self._shared is None:
            self._shared = [item]
            self._waiters.append(partial(on_commit, self._shared))
        else:
            self._shared.append(item)

    def take(self) -> list[Waiter]:
        """Returns all, which the next ones are none of."""
        waiters, self._waiters, self._shared = self._waiters, [], None
        return waiters


def _notify(waiters: Sequence[Waiter], error: BaseException | None) -> None:
    for waiter in waiters:
        waiter(error)


class Waiters:
    """The waiters of one group, by rising index. `notify` calls some; it may catch the errors of one."""

    __slots__ = ("_notify", "_waiting")

    def __init__(self, notify: Notify = _notify) -> None:
        self._notify = notify
        self._waiting: deque[tuple[int, int, list[Waiter]]] = deque()

    def add(self, index: int, term: int, waiters: list[Waiter]) -> None:
        """Adds callbacks for the commit of the entry (index, term), the newest so far."""
        if self._waiting and self._waiting[-1][:2] == (index, term):
            self._waiting[-1][2].extend(waiters)
        else:
            self._waiting.append((index, term, waiters))

    def on_commit(self, index: int, term_at: Callable[[int], int | None]) -> None:
        """Calls the waiters up to `index`, which is committed and applied; `term_at` gives committed
        terms."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= index:
            at, term, waiters = waiting.popleft()
            error = None
            if term_at(at) != term:
                error = NotLeader(f"entry {at} of term {term} is not known to be the one that was committed")
            self._notify(waiters, error)

    def on_truncate(self, last_index: int) -> None:
        """Fails the waiters after `last_index`, which is truncated: their outcome is not known here."""
        lost = []
        while self._waiting and self._waiting[-1][0] > last_index:
            lost.append(self._waiting.pop())
        for at, term, waiters in reversed(lost):
            self._notify(waiters, NotLeader(f"entry {at} of term {term} was truncated by another leader"))

    def fail(self, error: BaseException) -> None:
        """Fails all waiters: nothing will be committed here any more."""
        waiting, self._waiting = self._waiting, deque()
        for _, _, waiters in waiting:
            self._notify(waiters, error)
