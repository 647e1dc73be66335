"""Errors that pass, made by the databases themselves where they can. Waltz's names are in docstrings."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, TimeoutError

from lockstep.sql import TablesMissing
from lockstep.sql.retries import call_with_retries, is_transient
from tests.lockstep.postgres import Postgres
from tests.lockstep.sql.ledger import Ledger, feed
from tests.support.cases import each_case

NOT_SERIALIZED = "DO $$ BEGIN RAISE EXCEPTION 'later' USING ERRCODE = '40001'; END $$"
FEW: dict[str, Any] = {"tries": 3, "first_pause_s": 0.001}
MANY: dict[str, Any] = {"tries": 100, "first_pause_s": 0.001}


def ready(database: str, **more: Any) -> Ledger:
    if "sqlite" in database:  # say so at once when the file is locked
        more["options"] = {"connect_args": {"timeout": 0}}
    made = Ledger(database, **more)
    made.create_tables()
    made.mark()
    return made


class Trouble:
    """Makes a callback meet an error that passes, so many times: a real lock or a real SQLSTATE."""

    def __init__(self, ledger: Ledger, database: str, times: int) -> None:
        self._left = times
        self._blocker = sqlite3.connect(database.removeprefix("sqlite:///")) if "sqlite" in database else None
        if self._blocker is None:
            ledger.in_callback = self._raise
        else:
            self._blocker.isolation_level = None
            self._blocker.execute("BEGIN IMMEDIATE")
            sa.event.listen(ledger.engine, "handle_error", self._met)

    def _raise(self, connection: Connection) -> None:
        if self._left:
            self._left -= 1
            connection.exec_driver_sql(NOT_SERIALIZED)

    def _met(self, _context: Any) -> None:
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        self._left = 0
        if self._blocker is not None:
            self._blocker.close()


def test_retry_then_success(database: str) -> None:
    """Waltz: testRetryThenSuccess."""
    ledger = ready(database, **FEW)
    Trouble(ledger, database, 2)
    ledger.follow(0, 5)
    ledger.check(0, 5)


def test_retry_then_failure(database: str) -> None:
    """Waltz: testRetryThenFailure. What comes out is the database's own error."""
    ledger = ready(database, **FEW)
    trouble = Trouble(ledger, database, 10)
    with pytest.raises(OperationalError) as raised:
        ledger.apply(feed(0, 1)[0])
    assert raised.value.__notes__ == ["tried 3 times"]
    trouble.end()
    assert ledger.applied() == []
    ledger.follow(0, 5)
    ledger.check(0, 5)


def test_error_getting_the_high_water_mark(database: str) -> None:
    """Waltz: testOnErrorGettingClientHighWaterMark."""
    ledger = ready(database, **FEW)
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE lockstep_marks RENAME TO away"))
    with pytest.raises(TablesMissing) as raised:
        ledger.mark()
    assert not hasattr(raised.value, "__notes__")  # this one does not pass
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE away RENAME TO lockstep_marks"))
    assert ledger.mark() == -1


@pytest.fixture
def broken(postgres_server: Postgres) -> Iterator[Postgres]:
    """Stopped; runs again afterwards."""
    yield postgres_server
    postgres_server.stop()
    postgres_server.start()


def test_database_down(broken: Postgres) -> None:
    """Waltz: testDatabaseDown. Both methods raise; when it is back they go on with what was committed."""
    ledger = ready(broken.new_database(), **FEW)
    ledger.follow(0, 3)
    broken.stop()
    for call in (lambda: ledger.apply(feed(0, 4)[3]), ledger.mark):
        with pytest.raises(OperationalError) as raised:
            call()
        assert raised.value.__notes__ == ["tried 3 times"]
    broken.start()
    assert ledger.mark() == feed(0, 3)[-1].offset
    ledger.follow(0, 6)
    ledger.check(0, 6)


def test_database_down_for_a_while(broken: Postgres) -> None:
    """It crashes within a callback and comes back within the tries."""
    ledger = ready(broken.new_database(), tries=100, first_pause_s=0.01)

    def crash(connection: Connection) -> None:
        if ledger.calls == 3:
            broken.stop()
            restart.start()

    restart = threading.Thread(target=broken.start)
    ledger.in_callback = crash
    ledger.follow(0, 5)
    restart.join()
    ledger.check(0, 5)


def test_a_connection_that_breaks(postgres_server: Postgres) -> None:
    ledger = ready(postgres_server.new_database(), **MANY)

    def end(connection: Connection) -> None:
        if ledger.calls == 1:
            number = connection.scalar(sa.text("SELECT pg_backend_pid()"))
            postgres_server.run(f"SELECT pg_terminate_backend({number}, 30000)")

    ledger.in_callback = end
    ledger.follow(0, 3)
    ledger.check(0, 3)
    assert ledger.calls == 4


def test_a_commit_whose_answer_is_lost(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, finds its own mark, and skips."""
    ledger = ready(database, **FEW)
    commit = ledger.engine.dialect.do_commit
    locked = sqlite3.OperationalError("lost")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
    lost = [locked if "sqlite" in database else psycopg.OperationalError("lost")]

    def commit_and_lose(connection: Any) -> None:
        commit(connection)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(ledger.engine.dialect, "do_commit", commit_and_lose)
    ledger.apply(feed(0, 1)[0])
    assert (lost, ledger.calls) == ([], 1)
    monkeypatch.undo()
    ledger.check(0, 1)


def test_a_deadlock(postgres_server: Postgres) -> None:
    """Two partitions change the same rows in opposite order; PostgreSQL ends one of them."""
    database = postgres_server.new_database()
    ledger = ready(database, **MANY)
    ledger.mark(1)
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO totals VALUES (100, 0), (101, 0)"))
    both = threading.Barrier(2)
    change = sa.text("UPDATE totals SET total = total + 1 WHERE partition = :row")

    def cross(one: Ledger, rows: tuple[int, int]) -> None:
        def in_callback(connection: Connection) -> None:
            connection.execute(change, {"row": rows[0]})
            if one.calls == 1:
                both.wait(30)
            connection.execute(change, {"row": rows[1]})

        one.in_callback = in_callback

    other = Ledger(database, **MANY)
    cross(ledger, (100, 101))
    cross(other, (101, 100))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(one.follow, n, 1) for n, one in enumerate((ledger, other))]:
            done.result()
    assert ledger.calls + other.calls > 2
    for partition in (0, 1):
        ledger.check(partition, 1)
    with ledger.engine.connect() as connection:
        assert connection.execute(
            sa.text("SELECT total FROM totals WHERE partition >= 100")
        ).scalars().all() == [2, 2]


@pytest.mark.parametrize("isolation_level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_process_that_waited_for_the_row_skips(postgres_server: Postgres, isolation_level: str) -> None:
    """Above READ COMMITTED the one that waited gets 40001 first, and looks again."""
    database = postgres_server.new_database()
    options = {"isolation_level": isolation_level}
    ledger = ready(database, options=options, **MANY)
    other = Ledger(database, options=options, **MANY)
    errors: list[str] = []
    sa.event.listen(
        other.engine, "handle_error", lambda context: errors.append(context.original_exception.sqlstate)
    )
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def let_wait(connection: Connection) -> None:
        second.start()
        while postgres_server.run(waiting) == [(0,)]:
            time.sleep(0.001)

    second = threading.Thread(target=other.apply, args=(feed(0, 1)[0],))
    ledger.in_callback = let_wait
    ledger.apply(feed(0, 1)[0])
    second.join()
    assert other.calls == 0
    assert errors == ([] if isolation_level == "READ COMMITTED" else ["40001"])
    ledger.check(0, 1)


def of(cause: Exception) -> DBAPIError:
    return OperationalError("SELECT 1", {}, cause)


def busy(code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError("text")
    made.sqlite_errorcode = code
    return made


@each_case(
    ("error", "is_passing"),
    [
        (of(psycopg.errors.SerializationFailure()), True),
        (of(psycopg.errors.DeadlockDetected()), True),
        (of(psycopg.errors.AdminShutdown()), True),
        (of(psycopg.errors.CannotConnectNow()), True),
        (of(psycopg.errors.TooManyConnections()), True),
        (of(psycopg.errors.LockNotAvailable()), True),
        (of(psycopg.OperationalError("connection refused")), True),
        (of(busy(sqlite3.SQLITE_BUSY)), True),
        (of(busy(sqlite3.SQLITE_BUSY_SNAPSHOT)), True),
        (of(busy(sqlite3.SQLITE_CANTOPEN)), True),
        (of(busy(sqlite3.SQLITE_ERROR)), False),
        (of(busy(sqlite3.SQLITE_FULL)), False),
        (of(sqlite3.OperationalError("of the module")), False),
        (of(psycopg.errors.QueryCanceled()), False),
        (of(psycopg.errors.UndefinedTable()), False),
        (of(psycopg.errors.UniqueViolation()), False),
        (IntegrityError("INSERT", {}, psycopg.IntegrityError("no state")), False),
        (TimeoutError("no connection is free"), True),
        (DBAPIError("SELECT 1", {}, Exception("gone"), connection_invalidated=True), True),
    ],
    ids=repr,
)
def test_which_errors_pass(error: DBAPIError | TimeoutError, is_passing: bool) -> None:
    assert is_transient(error) is is_passing


def test_the_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def fail() -> None:
        raise of(psycopg.errors.DeadlockDetected())

    with pytest.raises(OperationalError):
        call_with_retries(fail, 12, 0.05)
    assert len(pauses) == 11
    for number, pause_s in enumerate(pauses):
        longest = min(0.05 * 2**number, 5.0)
        assert longest / 2 <= pause_s <= longest
