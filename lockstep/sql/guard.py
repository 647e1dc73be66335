"""The connection that a callback gets: its transaction begins before the callback and ends after it.

Owns: what is rejected meanwhile (`ForbiddenInCallback`). An error that the callback catches is raised again
after it, so that nothing is committed then. Savepoints are allowed.
Does not: look into functions of the database, or stop a callback that takes the driver's connection from a
cursor.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NoReturn

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, RootTransaction, TwoPhaseTransaction
from sqlalchemy.pool import PoolProxiedConnection

from lockstep.player.target.guard import forbidden_words


class ForbiddenInCallback(Exception):
    """A callback tried to end its transaction, to change how it runs, or to get around it."""


class CallbackConnection(Connection):
    """A connection that is an ordinary one outside of `guard`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._is_guarded = False
        self._rejection: ForbiddenInCallback | None = None
        # a Session or a Transaction object calls none of the methods below
        event.listen(self, "commit", functools.partial(self._reject_if_guarded, "commit"))
        event.listen(self, "rollback", functools.partial(self._reject_if_guarded, "rollback"))
        event.listen(self, "before_cursor_execute", self._check_statement)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Rejects what ends or changes the transaction. Raises ForbiddenInCallback at the end if something
        was rejected."""
        self._is_guarded = True
        try:
            yield
        finally:
            self._is_guarded = False
            if self._rejection is not None:
                # a Transaction whose end was rejected does not request another one from the driver
                self.invalidate()
                raise self._rejection

    def reject(self, what: str) -> NoReturn:
        self._rejection = ForbiddenInCallback(
            f"{what}: the transaction holds the high-water mark as well and ends after the callback"
        )
        raise self._rejection

    def _reject_if_guarded(self, what: str, _connection: Connection) -> None:
        if self._is_guarded:
            self.reject(what)

    def _check_statement(self, _connection: Connection, _cursor: Any, statement: str, *_more: object) -> None:
        if self._is_guarded and (words := forbidden_words(statement)):
            self.reject(words)

    def begin(self) -> RootTransaction:
        if self._is_guarded:
            self.reject("begin; a savepoint is begin_nested()")
        return super().begin()

    def begin_twophase(self, xid: Any | None = None) -> TwoPhaseTransaction:
        self.reject("begin_twophase")

    def commit(self) -> None:
        self._reject_if_guarded("commit", self)
        super().commit()

    def rollback(self) -> None:
        self._reject_if_guarded("rollback", self)
        super().rollback()

    def close(self) -> None:
        self._reject_if_guarded("close", self)
        super().close()

    def detach(self) -> None:
        self._reject_if_guarded("detach", self)
        super().detach()

    def invalidate(self, exception: BaseException | None = None) -> None:
        if exception is None:  # otherwise it is SQLAlchemy that has lost the connection
            self._reject_if_guarded("invalidate", self)
        super().invalidate(exception)

    def execution_options(self, **options: Any) -> Connection:
        """Rejects options that change the transaction: isolation, autocommit, read only, another schema. A
        statement has options of its own."""
        if self._is_guarded:
            self.reject(f"execution_options {', '.join(options)}; a statement may have its own")
        return super().execution_options(**options)

    @property
    def connection(self) -> PoolProxiedConnection:
        """The driver's connection, which has no guard."""
        self._reject_if_guarded("the driver's connection", self)
        return super().connection
