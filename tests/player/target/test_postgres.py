"""What the store in PostgreSQL keeps from its application, and from processes that hang."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from lockstep.player.target.guard import ForbiddenInApply
from lockstep.player.target.postgres import PostgresLog, PostgresStore
from lockstep.player.target.records import Delivered
from lockstep.player.target.store import MarkMismatch
from lockstep.player.target.target_position import StaleTerms
from tests.lockstep.postgres import Postgres
from tests.player.target.stores import NAME, PostgresLedger, Step, entries, mark, nothing
from tests.player.target.streams import PATIENCE_S

Connection = psycopg.Connection[Any]


@pytest.fixture
def stored(postgres_ledger: PostgresLedger) -> Iterator[PostgresLog]:
    log = postgres_ledger.store().open(NAME)
    log.fence(mark(1, -1))
    yield log
    log.close()


def _swallowed(connection: Connection) -> None:
    with contextlib.suppress(ForbiddenInApply):
        connection.execute("COMMIT")


def _in_savepoint(connection: Connection) -> None:
    with connection.transaction() as inner:
        connection.execute("DELETE FROM applied")
        raise psycopg.Rollback(inner)


def _many(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("ROLLBACK", [()])


def _streamed(connection: Connection) -> None:
    with connection.cursor() as cursor:
        list(cursor.stream("SELECT 1; COMMIT"))


def _copied(connection: Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("COMMIT"):
        pass


FORBIDDEN: dict[str, Step] = {
    "text": lambda connection: connection.execute("COMMIT"),
    "bytes": lambda connection: connection.execute(b" /* done */ end"),
    "composed": lambda connection: connection.execute(sql.SQL("{}").format(sql.SQL("rollback"))),
    "second": lambda connection: connection.execute("DELETE FROM applied; COMMIT"),
    "set": lambda connection: connection.execute("SET search_path = other"),
    "cursor": lambda connection: connection.cursor().execute("ABORT"),
    "many": _many,
    "streamed": _streamed,
    "copied": _copied,
    "swallowed": _swallowed,
}
REFUSED_BY_PSYCOPG: dict[str, Step] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "autocommit": lambda connection: setattr(connection, "autocommit", False),
    "with": lambda connection: connection.__exit__(None, None, None),
}


@pytest.mark.parametrize("step", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_transaction_is_not_the_applications(
    stored: PostgresLog, postgres_ledger: PostgresLedger, step: Step
) -> None:
    postgres_ledger.then = step
    with pytest.raises(ForbiddenInApply, match="the transaction holds the mark"):
        stored.store(entries(-1, 0), mark(1, 0))
    assert postgres_ledger.applied() == []
    postgres_ledger.then = nothing
    stored.store(entries(-1, 0), mark(1, 0))  # with the same connection
    assert postgres_ledger.applied() == [0]


@pytest.mark.parametrize("step", REFUSED_BY_PSYCOPG.values(), ids=REFUSED_BY_PSYCOPG)
def test_what_psycopg_refuses(stored: PostgresLog, postgres_ledger: PostgresLedger, step: Step) -> None:
    postgres_ledger.then = step
    with pytest.raises(psycopg.Error):
        stored.store(entries(-1, 0), mark(1, 0))
    assert postgres_ledger.applied() == []
    assert postgres_ledger.run("SELECT position FROM lockstep_player_marks") == [(-1,)]


def _behind_the_back(connection: Connection) -> None:
    psycopg.ClientCursor(connection).execute("COMMIT")


def _and_begun_again(connection: Connection) -> None:
    psycopg.ClientCursor(connection).execute("COMMIT; BEGIN")


@pytest.mark.parametrize("step", [_behind_the_back, _and_begun_again])
def test_a_commit_that_nobody_saw_moves_no_mark(
    stored: PostgresLog, postgres_ledger: PostgresLedger, step: Step
) -> None:
    postgres_ledger.then = step
    with pytest.raises(ForbiddenInApply, match="was not noticed"):
        stored.store(entries(-1, 0), mark(1, 0))
    assert postgres_ledger.run("SELECT position FROM lockstep_player_marks") == [(-1,)]


def test_savepoints_are_allowed(stored: PostgresLog, postgres_ledger: PostgresLedger) -> None:
    postgres_ledger.then = _in_savepoint
    stored.store(entries(-1, 0), mark(1, 0))
    postgres_ledger.then = lambda connection: [
        connection.execute(text)
        for text in ("SAVEPOINT s", "DELETE FROM applied", "ROLLBACK TO s", "RELEASE s")
    ]
    stored.store(entries(0, 1), mark(1, 1))
    assert postgres_ledger.applied() == [0, 1]


def test_an_error_that_was_swallowed_stores_nothing(
    stored: PostgresLog, postgres_ledger: PostgresLedger
) -> None:
    def fail(connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            connection.execute("SELECT 1 / 0")

    postgres_ledger.then = fail
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        stored.store(entries(-1, 0), mark(1, 0))
    assert postgres_ledger.applied() == []


def test_a_row_that_is_gone(stored: PostgresLog, postgres_ledger: PostgresLedger) -> None:
    postgres_ledger.run("DELETE FROM lockstep_player_marks")
    with pytest.raises(MarkMismatch, match="gone"):
        stored.store(entries(-1, 0), mark(1, 0))


def test_processes_make_the_table_at_once(postgres_ledger: PostgresLedger) -> None:
    start = threading.Barrier(4)

    def begin() -> None:
        start.wait(PATIENCE_S)
        postgres_ledger.store().open(NAME).close()

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(begin) for _ in range(4)]:
            each.result(PATIENCE_S)


def test_a_process_that_hangs_in_a_transaction_loses_it(postgres_ledger: PostgresLedger) -> None:
    """As a process does that is stopped: the one that replaces it does not wait for ever."""
    applying, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        applying.set()
        assert go_on.wait(PATIENCE_S)

    postgres_ledger.then = wait

    def hang() -> None:
        log = postgres_ledger.store(idle_timeout_s=0.05).open(NAME)
        log.fence(mark(1, -1))
        try:
            log.store(entries(-1, 0), mark(1, 0))
        finally:
            log.close()

    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(hang)
        assert applying.wait(PATIENCE_S)
        newer = postgres_ledger.store().open(NAME)
        assert newer.fence(mark(2, -1)) == -1
        go_on.set()
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            hanging.result(PATIENCE_S)
    assert postgres_ledger.applied() == []
    newer.close()


def test_commits_are_flushed(postgres_ledger: PostgresLedger) -> None:
    name = postgres_ledger.run("SELECT current_database()")[0][0]
    found: list[object] = []
    postgres_ledger.then = lambda connection: found.append(
        connection.execute("SELECT current_setting('synchronous_commit')").fetchone()[0]
    )
    for term, setting in enumerate(("off", "local"), 1):
        postgres_ledger.run(f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
        log = postgres_ledger.store().open(NAME)
        position = log.fence(mark(term, -1))
        log.store(entries(position, position + 1), mark(term, position + 1))
        log.close()
    assert found == ["on", "local"]


def test_a_server_that_went_away(postgres_server: Postgres, postgres_ledger: PostgresLedger) -> None:
    log = postgres_ledger.store().open(NAME)
    log.fence(mark(1, -1))
    log.store(entries(-1, 0), mark(1, 0))
    postgres_server.stop()
    postgres_server.start()
    with pytest.raises(psycopg.OperationalError):
        log.store(entries(0, 1), mark(1, 1))
    log.close()
    log = postgres_ledger.store().open(NAME)
    assert log.fence(mark(2, -1)) == 0
    with pytest.raises(StaleTerms):
        log.fence(mark(2, -1))
    log.close()


def test_what_cannot_be_a_store() -> None:
    async def later(connection: Connection, delivered: Delivered) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        PostgresStore("dbname=any", later)
    with pytest.raises(psycopg.ProgrammingError):
        PostgresStore("no such thing", lambda connection, delivered: None)
