"""The mark and what the application did are one transaction of a real SQLite file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from lockstep.player.target.guard import ForbiddenInApply
from lockstep.player.target.records import Delivered
from lockstep.player.target.sqlite import SqliteLog, SqliteStore
from lockstep.player.target.store import MarkMismatch
from tests.player.target.stores import NAME, SqliteLedger, Step, entries, mark, nothing


@pytest.fixture
def stored(sqlite_ledger: SqliteLedger) -> Iterator[SqliteLog]:
    log = sqlite_ledger.store().open(NAME)
    log.fence(mark(1, -1))
    yield log
    log.close()


def _in_savepoint(connection: sqlite3.Connection) -> None:
    connection.execute("SAVEPOINT mine")
    connection.execute("DELETE FROM applied")
    connection.execute("ROLLBACK TO mine")
    connection.execute("RELEASE mine")


def test_savepoints_are_allowed(stored: SqliteLog, sqlite_ledger: SqliteLedger) -> None:
    sqlite_ledger.then = _in_savepoint
    stored.store(entries(-1, 0), mark(1, 0))
    assert sqlite_ledger.applied() == [0]


def _swallowed(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        connection.commit()


def _rolled_back_by_a_clause(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.IntegrityError):
        connection.execute("INSERT OR ROLLBACK INTO applied VALUES (0)")


def _goes_on_after_a_clause(connection: sqlite3.Connection) -> None:
    """SQLite would commit this at once."""
    _rolled_back_by_a_clause(connection)
    connection.execute("INSERT INTO applied VALUES (77)")


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
def test_the_transaction_is_not_the_applications(
    stored: SqliteLog, sqlite_ledger: SqliteLedger, step: Step
) -> None:
    sqlite_ledger.then = step
    with pytest.raises(ForbiddenInApply, match="the transaction holds the mark"):
        stored.store(entries(-1, 0), mark(1, 0))
    assert sqlite_ledger.applied() == []
    assert stored.load() == mark(1, -1)
    stored.close()
    sqlite_ledger.then = nothing
    again = sqlite_ledger.store().open(NAME)
    again.fence(mark(2, -1))
    again.store(entries(-1, 0), mark(2, 0))
    assert sqlite_ledger.applied() == [0]
    again.close()


def test_an_error_rolls_back(stored: SqliteLog, sqlite_ledger: SqliteLedger) -> None:

    def fail(connection: sqlite3.Connection) -> None:
        raise LookupError("no such account")

    sqlite_ledger.then = fail
    with pytest.raises(LookupError):
        stored.store(entries(-1, 0), mark(1, 0))
    sqlite_ledger.then = lambda connection: connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        stored.store(entries(-1, 0), mark(1, 0))
    assert sqlite_ledger.applied() == []


def test_commits_are_flushed(sqlite_ledger: SqliteLedger) -> None:
    found: list[object] = []

    def look(connection: sqlite3.Connection) -> None:
        found.extend(
            connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("journal_mode", "synchronous")
        )

    sqlite_ledger.then = look
    for store in (
        SqliteStore(sqlite_ledger.path, sqlite_ledger.apply),
        SqliteStore(sqlite_ledger.path, sqlite_ledger.apply, synchronous="NORMAL"),
    ):
        log = store.open(NAME)
        term = len(found) + 1
        position = log.fence(mark(term, -1))
        log.store(entries(position, position + 1), mark(term, position + 1))
        log.close()
    assert found == ["wal", 2, "wal", 1]


def test_a_row_that_is_gone(stored: SqliteLog, sqlite_ledger: SqliteLedger) -> None:
    with contextlib.closing(sqlite3.connect(sqlite_ledger.path)) as connection, connection:
        connection.execute("DELETE FROM lockstep_player_marks")
    with pytest.raises(MarkMismatch, match="gone"):
        stored.store(entries(-1, 0), mark(1, 0))


def test_nobody_waits_for_ever(stored: SqliteLog, sqlite_ledger: SqliteLedger) -> None:
    impatient = sqlite_ledger.store(timeout_s=0).open(NAME)

    def meanwhile(_: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            impatient.fence(mark(2, -1))

    sqlite_ledger.then = meanwhile
    stored.store(entries(-1, 0), mark(1, 0))
    assert impatient.fence(mark(2, -1)) == 0
    impatient.close()


def test_what_cannot_be_a_store() -> None:
    async def later(connection: sqlite3.Connection, delivered: Delivered) -> None: ...

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None: ...

    with pytest.raises(ValueError, match="a file"):
        SqliteStore(":memory:", apply)
    with pytest.raises(ValueError, match="OFF"):
        SqliteStore("state.db", apply, synchronous="OFF")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plain function"):
        SqliteStore("state.db", later)
    with pytest.raises(sqlite3.OperationalError):
        SqliteStore("/no/such/directory/state.db", apply).open(NAME)
