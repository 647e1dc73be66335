"""The mark and what the application did are one transaction of a real SQLite file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from player.core.messages import Part
from player.target.guard import ForbiddenInApply
from player.target.marks import Mark, StaleTerms
from player.target.records import Delivered, LogName, opened
from player.target.sqlite import SqliteLog, SqliteStore
from player.target.store import WrongMark
from tests.player.target.streams import LOG_ID, payload

NAME = LogName(LOG_ID, "topic", 0)
Step = Callable[[sqlite3.Connection], object]


class Ledger:
    """An application that notes each offset; `then` is what a test does besides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.then: Step = lambda connection: None
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS applied (at INTEGER PRIMARY KEY, value BLOB)")

    def apply(self, connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            connection.execute("INSERT INTO applied VALUES (?, ?)", (record.offset, record.value))
        self.then(connection)

    def applied(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT at FROM applied ORDER BY at")]


def entries(previous: int, *positions: int) -> Delivered:
    parts = [Part(at, payload(at), 1) for at in positions]
    return Delivered(NAME, previous, positions[-1] if positions else previous + 1, opened(parts))


def mark(target_term: int, position: int, player_term: int = 1) -> Mark:
    return Mark(LOG_ID, player_term, target_term, position)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state.db")


@pytest.fixture
def stored(ledger: Ledger) -> Iterator[SqliteLog]:
    log = SqliteStore(ledger.path, ledger.apply).open(NAME)
    yield log
    log.close()


def other(ledger: Ledger) -> SqliteLog:
    """Another process's, as far as SQLite knows."""
    return SqliteStore(ledger.path, ledger.apply, timeout_s=0).open(NAME)


def test_a_new_log_begins_with_its_greeting(stored: SqliteLog) -> None:
    assert stored.load() is None
    assert stored.greet(mark(1, 39)) == 39
    assert stored.load() == mark(1, 39)


def test_a_greeting_raises_the_terms_and_leaves_the_position(stored: SqliteLog) -> None:
    stored.greet(mark(5, 10))
    assert stored.greet(mark(6, 8)) == 10
    assert stored.greet(mark(1, 99, player_term=2)) == 10
    assert stored.load() == mark(1, 10, player_term=2)


def test_terms_never_go_back(stored: SqliteLog) -> None:
    stored.greet(mark(3, 10, player_term=2))
    for stale in (mark(3, 10, player_term=2), mark(2, 10, player_term=2), mark(9, 10)):
        with pytest.raises(StaleTerms) as refused:
            stored.greet(stale)
        assert refused.value.mark == mark(3, 10, player_term=2)
    assert stored.load() == mark(3, 10, player_term=2)


def test_effects_and_mark_are_stored_together(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, -1))
    stored.store(entries(-1, 0, 1), mark(1, 1))
    stored.store(Delivered(NAME, 1, 7, []), mark(1, 7))  # only the mark moves
    stored.store(entries(7, 9), mark(1, 9))
    assert ledger.applied() == [0, 1, 9]
    assert stored.load() == mark(1, 9)


def test_a_process_that_was_replaced_changes_nothing(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, -1))
    stored.store(entries(-1, 0), mark(1, 0))
    newer = other(ledger)
    assert newer.greet(mark(2, -1)) == 0
    with pytest.raises(StaleTerms):
        stored.store(entries(0, 1), mark(1, 1))
    newer.store(entries(0, 1), mark(2, 1))
    assert ledger.applied() == [0, 1]
    newer.close()


def test_a_greeting_waits_for_the_transaction_of_another_process(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, -1))
    newer = other(ledger)

    def meanwhile(_: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            newer.greet(mark(2, -1))  # it has a timeout of 0

    ledger.then = meanwhile
    stored.store(entries(-1, 0), mark(1, 0))
    assert newer.greet(mark(2, -1)) == 0
    newer.close()


def test_a_mark_that_somebody_moved_is_an_error(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, 4))
    with pytest.raises(WrongMark, match="position=4"):
        stored.store(entries(5, 6), mark(1, 6))
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("DELETE FROM lockstep_player_marks")
    with pytest.raises(WrongMark, match="gone"):
        stored.store(entries(4, 5), mark(1, 5))
    assert ledger.applied() == []


def _in_savepoint(connection: sqlite3.Connection) -> None:
    connection.execute("SAVEPOINT mine")
    connection.execute("DELETE FROM applied")
    connection.execute("ROLLBACK TO mine")
    connection.execute("RELEASE mine")


def test_savepoints_are_allowed(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, -1))
    ledger.then = _in_savepoint
    stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == [0]


def _swallowed(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        connection.commit()


def _rolled_back_by_a_clause(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.IntegrityError):
        connection.execute("INSERT OR ROLLBACK INTO applied VALUES (0, NULL)")


def _goes_on_after_a_clause(connection: sqlite3.Connection) -> None:
    """SQLite would commit this at once."""
    _rolled_back_by_a_clause(connection)
    connection.execute("INSERT INTO applied VALUES (77, NULL)")


FORBIDDEN: dict[str, Step] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "with": lambda connection: connection.__exit__(None, None, None),
    "text": lambda connection: connection.execute("/* done */ COMMIT"),
    "end": lambda connection: connection.cursor().execute("END TRANSACTION"),
    "rollback-text": lambda connection: connection.execute("ROLLBACK"),
    "begin": lambda connection: connection.execute("BEGIN"),
    "script": lambda connection: connection.executescript("DELETE FROM applied"),
    "level": lambda connection: setattr(connection, "isolation_level", None),
    "swallowed": _swallowed,
    "clause": _rolled_back_by_a_clause,
    "after-clause": _goes_on_after_a_clause,
}


@pytest.mark.parametrize("step", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_transaction_is_not_the_applications(stored: SqliteLog, ledger: Ledger, step: Step) -> None:
    stored.greet(mark(1, -1))
    ledger.then = step
    with pytest.raises(ForbiddenInApply, match="the transaction holds the mark"):
        stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == []
    assert stored.load() == mark(1, -1)
    stored.close()
    ledger.then = lambda connection: None
    again = other(ledger)
    again.greet(mark(2, -1))
    again.store(entries(-1, 0), mark(2, 0))
    assert ledger.applied() == [0]
    again.close()


def test_an_error_rolls_back(stored: SqliteLog, ledger: Ledger) -> None:
    stored.greet(mark(1, -1))

    def fail(connection: sqlite3.Connection) -> None:
        raise LookupError("no such account")

    ledger.then = fail
    with pytest.raises(LookupError):
        stored.store(entries(-1, 0), mark(1, 0))
    ledger.then = lambda connection: connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        stored.store(entries(-1, 0), mark(1, 0))
    assert ledger.applied() == []


def test_commits_are_flushed(ledger: Ledger, tmp_path: Path) -> None:
    found: list[object] = []

    def look(connection: sqlite3.Connection) -> None:
        for setting in ("journal_mode", "synchronous"):
            found.append(connection.execute(f"PRAGMA {setting}").fetchone()[0])

    ledger.then = look
    for synchronous in ("FULL", "NORMAL"):
        log = SqliteStore(ledger.path, ledger.apply, synchronous=synchronous).open(NAME)
        log.greet(mark(len(found) + 1, len(found)))
        position = log.load()
        assert position is not None
        log.store(entries(position.position, len(found) + 1), mark(len(found) + 1, len(found) + 1))
        log.close()
    assert found == ["wal", 2, "wal", 1]


def test_what_cannot_be_a_store() -> None:
    async def later(connection: sqlite3.Connection, delivered: Delivered) -> None: ...

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None: ...

    with pytest.raises(ValueError, match="a file"):
        SqliteStore(":memory:", apply)
    with pytest.raises(ValueError, match="OFF"):
        SqliteStore("state.db", apply, synchronous="OFF")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plain function"):
        SqliteStore("state.db", later)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.OperationalError):
        SqliteStore("/no/such/directory/state.db", apply).open(NAME)
