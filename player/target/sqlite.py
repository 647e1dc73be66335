"""A target whose state is in a SQLite file: the mark is a row beside it, and changes with it.

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            connection.execute("INSERT INTO ...", (record.key, record.value))

    store = SqliteStore("shard.db", apply)

Owns: the table `lockstep_player_marks`, and the transaction: the mark is checked, the application applies,
the mark is stored, and all of it committed. The file is in WAL mode, and each commit is flushed
(synchronous=FULL). Several processes may have the file open; one that was replaced finds other terms, and
changes nothing.

An application that tries to commit or roll back is rejected by SQLite itself, from the authorizer, whatever
way it takes (`set_authorizer` is not its to call). Where the database rolls the transaction back, as for
INSERT OR ROLLBACK, that is found before anything is committed.
Does not: wait longer than `timeout_s` for a process that is stopped within a transaction: the stream ends.
"""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from lockstep.player.target.guard import ForbiddenInApply, check_applied
from lockstep.player.target.records import Delivered, LogName
from lockstep.player.target.store import MarkMismatch
from lockstep.player.target.target_position import Mark, StaleTerms

Apply = Callable[[sqlite3.Connection, Delivered], object]

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS lockstep_player_marks (
    log_id TEXT NOT NULL PRIMARY KEY,
    player_term INTEGER NOT NULL,
    target_term INTEGER NOT NULL,
    position INTEGER NOT NULL
)"""
_BEGIN: Final = "BEGIN IMMEDIATE /* the player's */"
"""Its text is in the statement cache, which bypasses the authorizer: so the text differs from every other
one."""
_LOAD: Final = "SELECT player_term, target_term, position FROM lockstep_player_marks WHERE log_id = ?"
_FENCE: Final = """
INSERT INTO lockstep_player_marks AS stored (log_id, player_term, target_term, position) VALUES (?, ?, ?, ?)
ON CONFLICT (log_id) DO UPDATE SET player_term = excluded.player_term, target_term = excluded.target_term
WHERE (stored.player_term, stored.target_term) < (excluded.player_term, excluded.target_term)"""
_MOVE: Final = "UPDATE lockstep_player_marks SET position = ? WHERE log_id = ?"


class SqliteStore:
    """See the module.

    Args:
        apply: changes what the records change, with this connection, in the transaction that it is in. It may
            be called again for the same records, after what it did was rolled back. No records, no call.
        synchronous: NORMAL may lose the last transactions when the machine loses power, though they were
            acknowledged: their marks are lost with them, and they come again if the log still has them.
        timeout_s: how long to wait for another process that writes.
    Raises:
        ValueError: it would be another database for each log.
        TypeError: `apply` is async.
    """

    def __init__(
        self,
        path: Path | str,
        apply: Apply,
        *,
        synchronous: Literal["NORMAL", "FULL", "EXTRA"] = "FULL",
        timeout_s: float = 10.0,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise ValueError("a target keeps its state in a file")
        if synchronous not in ("NORMAL", "FULL", "EXTRA"):
            raise ValueError(f"synchronous={synchronous!r} is none of NORMAL, FULL, EXTRA")
        if inspect.iscoroutinefunction(apply):
            raise TypeError("apply is a plain function: the transaction waits for it")
        self._path = path
        self._apply = apply
        self._synchronous = synchronous
        self._timeout_s = timeout_s
        self._writing = threading.Lock()

    def open(self, name: LogName) -> SqliteLog:
        """Raises sqlite3.Error."""
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level="IMMEDIATE")
        try:
            with self._writing:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                connection.execute(_TABLE)
            return SqliteLog(connection, name.log_id, self._apply, self._writing)
        except BaseException:
            connection.close()
            raise

    def stop(self) -> None:
        """Does nothing: nothing here waits for long."""


class SqliteLog:
    """One log, over a connection of its own."""

    def __init__(
        self, connection: sqlite3.Connection, log_id: str, apply: Apply, writing: threading.Lock
    ) -> None:
        self._connection = connection
        self._log_id = log_id
        self._apply = apply
        self._writing = writing
        """A lock for the writes of this process's logs; SQLite would make waiting writers sleep and poll."""
        self._is_guarded = False
        self._refused: str | None = None
        connection.set_authorizer(self._authorize)

    def load(self) -> Mark | None:
        row = self._connection.execute(_LOAD, (self._log_id,)).fetchone()
        return None if row is None else Mark(self._log_id, *row)

    def fence(self, mark: Mark) -> int:
        with self._transaction():
            values = (mark.log_id, mark.player_term, mark.target_term, mark.position)
            fenced = self._connection.execute(_FENCE, values).rowcount
            stored = self._load_again()
            if fenced != 1:
                raise StaleTerms(stored)
        return stored.position

    def store(self, delivered: Delivered, mark: Mark) -> None:
        with self._transaction():
            stored = self._load_again()
            if stored.terms != mark.terms:
                raise StaleTerms(stored)
            if stored.position != delivered.previous_position:
                raise MarkMismatch(f"{stored} is stored, and not {delivered.previous_position}")
            if delivered.records:
                with self._guard():
                    check_applied(self._apply(self._connection, delivered))
            self._connection.execute(_MOVE, (mark.position, mark.log_id))

    def close(self) -> None:
        self._connection.close()

    def _load_again(self) -> Mark:
        stored = self.load()
        if stored is None:
            raise MarkMismatch(f"the mark of {self._log_id} is gone")
        return stored

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._writing:
            self._connection.execute(_BEGIN)
            try:
                yield
                self._connection.commit()
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # what it was is worth more
                    self._connection.rollback()
                raise

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        self._refused = None
        self._is_guarded = True
        try:
            yield
        except sqlite3.DatabaseError as error:
            if self._refused is not None:
                raise ForbiddenInApply(self._refused) from error
            raise
        finally:
            self._is_guarded = False
        if self._refused is not None:  # and the application continued
            raise ForbiddenInApply(self._refused)
        if not self._connection.in_transaction:
            raise ForbiddenInApply("ROLLBACK, as a conflict clause or a trigger requested")

    def _authorize(self, action: int, argument: str | None, *_: str | None) -> int:
        if self._is_guarded and action == sqlite3.SQLITE_TRANSACTION:
            self._refused = argument or "a transaction"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK
