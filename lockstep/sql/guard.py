"""The connection that a callback gets: its transaction begins before the callback and ends after it.

Owns: what is rejected meanwhile (`ForbiddenInCallback`). A rejection that the callback swallows is raised
after it, so that nothing is committed then. Savepoints are allowed.
Does not: look into functions of the database, or stop whoever takes a driver's connection from a cursor.
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
    """An ordinary connection, but inside `guard`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._is_guarded = False
        self._refusal: ForbiddenInCallback | None = None
        # a Session or a Transaction object calls none of the methods below
        event.listen(self, "commit", functools.partial(self._refuse_one, "commit"))
        event.listen(self, "rollback", functools.partial(self._refuse_one, "rollback"))
        event.listen(self, "before_cursor_execute", self._check_statement)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Refuse. Raises ForbiddenInCallback at the end if something was rejected."""
        self._is_guarded = True
        try:
            yield
        finally:
            self._is_guarded = False
            if self._refusal is not None:
                # a Transaction whose end was rejected does not request another one from the driver
                self.invalidate()
                raise self._refusal

    def refuse(self, what: str) -> NoReturn:
        self._refusal = ForbiddenInCallback(
            f"{what}: the transaction holds the high-water mark as well and ends after the callback"
        )
        raise self._refusal

    def _refuse_one(self, what: str, _connection: Connection) -> None:
        if self._is_guarded:
            self.refuse(what)

    def _check_statement(self, _connection: Connection, _cursor: Any, statement: str, *_more: object) -> None:
        if self._is_guarded and (words := forbidden_words(statement)):
            self.refuse(words)

    def begin(self) -> RootTransaction:
        if self._is_guarded:
            self.refuse("begin; a savepoint is begin_nested()")
        return super().begin()

    def begin_twophase(self, xid: Any | None = None) -> TwoPhaseTransaction:
        self.refuse("begin_twophase")

    def commit(self) -> None:
        self._refuse_one("commit", self)
        super().commit()

    def rollback(self) -> None:
        self._refuse_one("rollback", self)
        super().rollback()

    def close(self) -> None:
        self._refuse_one("close", self)
        super().close()

    def detach(self) -> None:
        self._refuse_one("detach", self)
        super().detach()

    def invalidate(self, exception: BaseException | None = None) -> None:
        if exception is None:  # otherwise it is SQLAlchemy that has lost the connection
            self._refuse_one("invalidate", self)
        super().invalidate(exception)

    def execution_options(self, **options: Any) -> Connection:
        """Isolation, autocommit, read only, another schema: what changes the transaction. A statement has
        options of its own."""
        if self._is_guarded:
            self.refuse(f"execution_options {', '.join(options)}; a statement may have its own")
        return super().execution_options(**options)

    @property
    def connection(self) -> PoolProxiedConnection:
        """The driver's, which knows no guard."""
        self._refuse_one("the driver's connection", self)
        return super().connection
