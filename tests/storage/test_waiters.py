"""Who waits for an entry hears of that very entry, once, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.storage.types import FlushFailed, NotLeader
from lockstep.storage.waiters import OpenWaiters, Waiter, Waiters


class Told:
    """Waiters with names, and what each was told."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.heard: list[tuple[str, str]] = []

    def add(self, index: int, term: int, *names: str) -> None:
        self.waiters.add(index, term, [self._waiter(name) for name in names])

    def _waiter(self, name: str) -> Waiter:
        return lambda error: self.heard.append((name, str(error or "committed")))

    def on_commit(self, index: int, terms: dict[int, int]) -> list[tuple[str, str]]:
        return self._during(lambda: self.waiters.on_commit(index, terms.get))

    def on_truncate(self, last_index: int) -> list[tuple[str, str]]:
        return self._during(lambda: self.waiters.on_truncate(last_index))

    def fail(self, error: BaseException) -> list[tuple[str, str]]:
        return self._during(lambda: self.waiters.fail(error))

    def _during(self, do: Callable[[], None]) -> list[tuple[str, str]]:
        self.heard = []
        do()
        return self.heard


def test_waiters_are_called_once_at_the_commit_in_their_order() -> None:
    told = Told()
    told.add(4, 1, "a", "b")
    told.add(4, 1, "c")
    told.add(6, 1, "d")
    assert told.on_commit(3, {}) == []
    assert told.on_commit(5, {4: 1}) == [("a", "committed"), ("b", "committed"), ("c", "committed")]
    assert told.on_commit(5, {4: 1}) == []
    assert told.on_commit(6, {6: 1}) == [("d", "committed")]


def test_items_of_one_waiter_until_they_are_taken() -> None:
    waiters = OpenWaiters()
    assert not waiters
    heard: list[tuple[list[str], BaseException | None]] = []

    def on_commit(items: list[str], error: BaseException | None) -> None:
        heard.append((items, error))

    for item in "ab":
        waiters.share(on_commit, item)
    waiters.add(lambda error: None)
    first = waiters.take()
    assert len(first) == 2 and not waiters
    waiters.share(on_commit, "c")
    error = NotLeader("lost")
    first[0](None)
    waiters.take()[0](error)
    assert heard == [(["a", "b"], None), (["c"], error)]


def test_another_term_s_entry_at_the_index_is_no_success() -> None:
    told = Told()
    told.add(4, 1, "a")
    told.add(5, 2, "b")
    assert told.on_commit(5, {4: 3, 5: 2}) == [
        ("a", "entry 4 of term 1 is not known to be the one that was committed"),
        ("b", "committed"),
    ]
    told.add(6, 2, "c")
    assert told.on_commit(9, {}) == [("c", "entry 6 of term 2 is not known to be the one that was committed")]


def test_waiters_of_one_index_in_two_terms_are_distinguished() -> None:
    told = Told()
    told.add(4, 1, "older")
    told.add(4, 3, "newer")
    assert told.on_commit(4, {4: 3}) == [
        ("older", "entry 4 of term 1 is not known to be the one that was committed"),
        ("newer", "committed"),
    ]


def test_waiters_of_truncated_entries_fail_and_lower_ones_wait() -> None:
    told = Told()
    for index, name in ((3, "kept"), (4, "first"), (5, "second")):
        told.add(index, 1, name)
    assert told.on_truncate(3) == [
        ("first", "entry 4 of term 1 was truncated by another leader"),
        ("second", "entry 5 of term 1 was truncated by another leader"),
    ]
    assert told.on_truncate(3) == []
    assert told.on_commit(5, {3: 1, 4: 2, 5: 2}) == [("kept", "committed")]


def test_callers_can_see_that_they_may_retry() -> None:
    errors: list[BaseException | None] = []
    waiters = Waiters()
    waiters.add(1, 1, [errors.append])
    waiters.on_commit(1, lambda index: 2)
    waiters.add(2, 2, [errors.append])
    waiters.on_truncate(1)
    assert [type(error) for error in errors] == [NotLeader, NotLeader]


def test_a_failure_calls_each_waiter_once() -> None:
    told = Told()
    told.add(1, 1, "a")
    told.add(2, 1, "b", "c")
    assert told.fail(FlushFailed("disk")) == [("a", "disk"), ("b", "disk"), ("c", "disk")]
    assert told.fail(FlushFailed("disk")) == []
    assert told.on_commit(2, {1: 1, 2: 1}) == []


def test_a_waiter_may_wait_again_in_its_call() -> None:
    """Whoever is told that the group failed often asks at once; that must not go on for ever."""
    waiters, told = Waiters(), []

    def again(error: BaseException | None) -> None:
        told.append(error)
        waiters.add(2, 1, [told.append])

    waiters.add(1, 1, [again])
    waiters.fail(NotLeader("closed"))
    assert len(told) == 1
    waiters.on_commit(2, lambda index: 1)
    assert told[1:] == [None]
