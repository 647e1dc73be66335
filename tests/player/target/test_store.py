"""What every store keeps to, each over its real files or server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstep.player.target.records import Delivered
from lockstep.player.target.store import MarkMismatch, StoredLog
from lockstep.player.target.target_position import StaleTerms
from tests.player.target.stores import NAME, Ledger, entries, mark, nothing
from tests.player.target.streams import PATIENCE_S


@pytest.fixture
def stored(ledger: Ledger) -> Iterator[StoredLog]:
    log = ledger.store().open(NAME)
    yield log
    log.close()


def test_a_new_log_begins_with_its_greeting(stored: StoredLog) -> None:
    assert stored.load() is None
    assert stored.fence(mark(1, 39)) == 39
    assert stored.load() == mark(1, 39)


def test_a_greeting_raises_the_terms_and_leaves_the_position(stored: StoredLog) -> None:
    stored.fence(mark(5, 10))
    assert stored.fence(mark(6, 8)) == 10
    assert stored.fence(mark(1, 99, player_term=2)) == 10
    assert stored.load() == mark(1, 10, player_term=2)


def test_terms_never_go_back(stored: StoredLog) -> None:
    stored.fence(mark(3, 10, player_term=2))
    for stale in (mark(3, 10, player_term=2), mark(2, 10, player_term=2), mark(9, 10)):
        with pytest.raises(StaleTerms) as refused:
            stored.fence(stale)
        assert refused.value.mark == mark(3, 10, player_term=2)
    assert stored.load() == mark(3, 10, player_term=2)


def test_effects_and_mark_are_stored(stored: StoredLog, ledger: Ledger) -> None:
    stored.fence(mark(1, -1))
    stored.store(entries(-1, 0, 1), mark(1, 1))
    stored.store(Delivered(NAME, 1, 7, []), mark(1, 7))  # only the mark moves
    stored.store(entries(7, 9), mark(1, 9))
    assert ledger.applied() == [0, 1, 9]
    assert stored.load() == mark(1, 9)
    again = ledger.store().open(NAME)
    assert again.load() == mark(1, 9)
    again.close()


def test_each_log_has_its_own_mark(stored: StoredLog, ledger: Ledger) -> None:
    stored.fence(mark(1, 5))
    other = ledger.store().open(NAME._replace(log_id="cluster/topic/1"))
    assert other.load() is None
    other.close()


def test_what_an_application_would_do_later_was_not_applied(stored: StoredLog, ledger: Ledger) -> None:
    """As an async method behind a lambda: the mark may not move over it."""

    async def later(_: object) -> None: ...

    stored.fence(mark(1, -1))
    ledger.then = later
    with pytest.raises(TypeError, match=r"a coroutine: nothing was applied$"):
        stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == []
    assert stored.load() == mark(1, -1)
    ledger.then = lambda _: "a cursor, or whatever a lambda returns"
    stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == [0]


def test_a_process_that_was_replaced_changes_nothing(stored: StoredLog, ledger: Ledger) -> None:
    stored.fence(mark(1, -1))
    stored.store(entries(-1, 0), mark(1, 0))
    newer = ledger.store().open(NAME)
    assert newer.fence(mark(2, -1)) == 0
    with pytest.raises(StaleTerms) as refused:
        stored.store(entries(0, 1), mark(1, 1))
    assert refused.value.mark == mark(2, 0)
    newer.store(entries(0, 1), mark(2, 1))
    assert ledger.applied() == [0, 1]
    newer.close()


def test_a_greeting_waits_for_the_transaction_of_another_process(ledger: Ledger) -> None:
    """And finds what that stored."""
    applying, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        applying.set()
        assert go_on.wait(PATIENCE_S)

    ledger.then = wait

    def older() -> None:
        log = ledger.store().open(NAME)
        log.fence(mark(1, -1))
        log.store(entries(-1, 0), mark(1, 0))
        log.close()

    def newer() -> int:
        log = ledger.store().open(NAME)
        try:
            return log.fence(mark(2, -1))
        finally:
            log.close()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(older)
        assert applying.wait(PATIENCE_S)
        second = threads.submit(newer)
        try:
            with pytest.raises(TimeoutError):
                second.result(0.1)
        finally:
            go_on.set()
        assert second.result(PATIENCE_S) == 0
        first.result(PATIENCE_S)
    assert ledger.applied() == [0]


def test_two_processes_race_for_each_transaction(ledger: Ledger) -> None:
    """Each greets with a higher pair, and stores until it is stale: all is applied once."""
    last = 60

    def play(player_term: int) -> None:
        log = ledger.store().open(NAME)
        for target_term in range(1, 1000):
            try:
                position = log.fence(mark(target_term * 2 + player_term, -1))
                while position < last:
                    log.store(
                        entries(position, position + 1), mark(target_term * 2 + player_term, position + 1)
                    )
                    position += 1
                break
            except StaleTerms:
                pass
        log.close()

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(play, number) for number in (0, 1)]:
            each.result(60)
    assert ledger.applied() == list(range(last + 1))


def test_a_mark_that_somebody_moved_is_an_error(stored: StoredLog, ledger: Ledger) -> None:
    stored.fence(mark(1, 4))
    with pytest.raises(MarkMismatch, match="position=4"):
        stored.store(entries(5, 6), mark(1, 6))
    assert ledger.applied() == []


def test_what_fails_moves_no_mark(stored: StoredLog, ledger: Ledger) -> None:
    stored.fence(mark(1, -1))

    def fail(_: object) -> None:
        raise LookupError("no such account")

    ledger.then = fail
    with pytest.raises(LookupError):
        stored.store(entries(-1, 0), mark(1, 0))
    assert stored.load() == mark(1, -1)
    ledger.then = nothing
    stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == [0]
