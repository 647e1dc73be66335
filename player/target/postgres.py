"""A target whose state is in a PostgreSQL database: the mark is a row beside it, and changes with it.

    def apply(connection: psycopg.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            connection.execute("INSERT INTO ...", (record.key, record.value))

    store = PostgresStore("postgresql://localhost/shard", apply)

Owns: the table `lockstep_player_marks`, and the transaction: the mark's row is locked and checked, the
application applies, the mark is stored, and all of it committed. So several processes of one target do no
harm: a handshake waits for the row, and afterwards the replaced stream finds other terms. Each log has
a session of its own in the database (a pooler in between must leave it that).

An application that tries to end the transaction is rejected where its statement does so; where that happened
in another way (a cursor class of its own, a procedure), the end of the transaction finds it: the mark is not
moved and the stream ends, but what was committed stays, and comes again. Commits are flushed:
synchronous_commit=off is put on again. Needs psycopg 3.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.sql import Composable

from lockstep.player.target.guard import ForbiddenInApply, check_applied, forbidden_words
from lockstep.player.target.records import Delivered, LogName
from lockstep.player.target.store import MarkMismatch
from lockstep.player.target.target_position import Mark, StaleTerms

Apply = Callable[["psycopg.Connection[TupleRow]", Delivered], object]

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS lockstep_player_marks (
    log_id text NOT NULL PRIMARY KEY,
    player_term bigint NOT NULL,
    target_term bigint NOT NULL,
    position bigint NOT NULL
)"""
_TABLE_LOCK: Final = 5_498_230_117
"""The advisory lock for creating the table: PostgreSQL fails one of two that do so at once."""
_SETTINGS: Final = """
SELECT set_config('idle_in_transaction_session_timeout', %s, false), CASE
WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
_LOAD: Final = "SELECT player_term, target_term, position FROM lockstep_player_marks WHERE log_id = %s"
_LOCK: Final = """
SELECT player_term, target_term, position, txid_current() FROM lockstep_player_marks
WHERE log_id = %s FOR UPDATE
"""
_FENCE: Final = """
INSERT INTO lockstep_player_marks AS stored (log_id, player_term, target_term, position)
VALUES (%s, %s, %s, %s)
ON CONFLICT (log_id) DO UPDATE SET player_term = excluded.player_term, target_term = excluded.target_term
WHERE (stored.player_term, stored.target_term) < (excluded.player_term, excluded.target_term)
RETURNING position"""
_MOVE: Final = "UPDATE lockstep_player_marks SET position = %s WHERE log_id = %s AND txid_current() = %s"

_CONNECTION: Final = {
    "application_name": "lockstep-target",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""The defaults for the application's connection string: a server that is gone is found in half a minute."""


class PostgresStore:
    """See the module.

    Args:
        conninfo: a connection string or URL of libpq.
        apply: changes what the records change, with this connection, in the transaction that it is in. It may
            be called again for the same records, after what it did was rolled back. No records, no call.
        idle_timeout_s: the server rolls a transaction back that is idle for so long: of a
            process that was stopped, and would keep the one that replaces it waiting.
    Raises:
        TypeError: `apply` is async.
        psycopg.ProgrammingError: `conninfo` is none.
    """

    def __init__(self, conninfo: str, apply: Apply, *, idle_timeout_s: float = 60.0) -> None:
        if inspect.iscoroutinefunction(apply):
            raise TypeError("apply is a plain function: the transaction waits for it")
        self._connection: dict[str, Any] = {**_CONNECTION, **conninfo_to_dict(conninfo)}
        self._apply = apply
        self._idle_timeout_ms = int(idle_timeout_s * 1000)

    def open(self, name: LogName) -> PostgresLog:
        """Raises psycopg.Error."""
        connection = GuardedConnection.connect(autocommit=True, **self._connection)
        try:
            connection.execute(_SETTINGS, (str(self._idle_timeout_ms),))
            found = connection.execute("SELECT to_regclass('lockstep_player_marks')").fetchone()
            if found == (None,):
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLE_LOCK,))
                    connection.execute(_TABLE)
            return PostgresLog(connection, name.log_id, self._apply)
        except BaseException:
            connection.close()
            raise

    def stop(self) -> None:
        """Do nothing: all waits here are for the database."""


class GuardedConnection(psycopg.Connection[TupleRow]):
    """An ordinary connection, but inside `guard`; psycopg itself rejects its commit() and rollback()."""

    refused: str | None = None
    is_guarded = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.cursor_factory = _GuardedCursor

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Raises ForbiddenInApply at the end if something was rejected."""
        self.refused = None
        self.is_guarded = True
        try:
            yield
        finally:
            self.is_guarded = False
        if self.refused is not None:  # and the application continued
            raise ForbiddenInApply(self.refused)


class _GuardedCursor(psycopg.Cursor[TupleRow]):
    def execute(self, query: Any, *args: Any, **more: Any) -> _GuardedCursor:
        self._check(query)
        return super().execute(query, *args, **more)

    def executemany(self, query: Any, *args: Any, **more: Any) -> None:
        self._check(query)
        super().executemany(query, *args, **more)

    def stream(self, query: Any, *args: Any, **more: Any) -> Iterator[TupleRow]:
        self._check(query)
        return super().stream(query, *args, **more)

    def copy(self, statement: Any, *args: Any, **more: Any) -> Any:
        self._check(statement)
        return super().copy(statement, *args, **more)

    def _check(self, query: object) -> None:
        connection = self.connection
        if not isinstance(connection, GuardedConnection) or not connection.is_guarded:
            return
        if isinstance(query, Composable):
            text = query.as_string(connection)
        else:
            text = query.decode("utf-8", "replace") if isinstance(query, bytes) else str(query)
        if (words := forbidden_words(text)) is not None:
            connection.refused = words
            raise ForbiddenInApply(words)


class PostgresLog:
    """One log, over a connection of its own."""

    def __init__(self, connection: GuardedConnection, log_id: str, apply: Apply) -> None:
        self._connection = connection
        self._log_id = log_id
        self._apply = apply

    def load(self) -> Mark | None:
        row = self._connection.execute(_LOAD, (self._log_id,)).fetchone()
        return None if row is None else Mark(self._log_id, *row)

    def fence(self, mark: Mark) -> int:
        values = (mark.log_id, mark.player_term, mark.target_term, mark.position)
        row = self._connection.execute(_FENCE, values).fetchone()
        if row is None:
            stored = self.load()
            if stored is None:
                raise MarkMismatch(f"the mark of {self._log_id} is gone")
            raise StaleTerms(stored)
        return int(row[0])

    def store(self, delivered: Delivered, mark: Mark) -> None:
        with self._connection.transaction():
            row = self._connection.execute(_LOCK, (self._log_id,)).fetchone()
            if row is None:
                raise MarkMismatch(f"the mark of {self._log_id} is gone")
            *values, transaction_id = row
            stored = Mark(self._log_id, *values)
            if stored.terms != mark.terms:
                raise StaleTerms(stored)
            if stored.position != delivered.previous_position:
                raise MarkMismatch(f"{stored} is stored, and not {delivered.previous_position}")
            if delivered.records:
                with self._connection.guard():
                    check_applied(self._apply(self._connection, delivered))
            values = [mark.position, self._log_id, transaction_id]
            if self._connection.execute(_MOVE, values).rowcount != 1:
                raise ForbiddenInApply("a commit or rollback that was not noticed")

    def close(self) -> None:
        self._connection.close()
