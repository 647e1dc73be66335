"""An application that has its state in a SQL database. See docs/sql.md.

Owns: the table of marks, and the order of things within a transaction: the mark first, then the callback,
then the commit. So one process applies each transaction, however many subscribe with one database: the
others wait for the row, find that it has moved on, and skip.
Does not: know what the callback does, or begin transactions for anything else of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from lockstep.sql.guard import CallbackConnection
from lockstep.sql.retries import call_with_retries
from lockstep.transactions.model import Application, Committed, TransactionError

T = TypeVar("T")

_NO_PARTITION: Final = -1
_CREATED_ANEW: Final = (
    "if the topic was deleted and re-created, delete the state and its marks, or use another database"
)


class HighWaterMarkMismatch(TransactionError):
    """The mark in the database is neither what must have been applied before, nor beyond: nothing is applied.

    Another program changed the table, or restored an older database under a process that runs.
    """


class TablesMissing(TransactionError):
    """The database has no table of marks: `create_tables` was not called, or another database is meant."""


class Snapshot(NamedTuple):
    """The application's state at one moment."""

    connection: Connection
    marks: Mapping[int, int]
    """Partition -> high-water mark of that state; only of partitions that were requested before."""


class SqlApplication(Application):
    """Derive from it and give it `apply_in`.

    Its methods block. Where an event loop runs in the calling thread they return an awaitable that runs in
    another thread, so both transaction clients can use it. The partitions may be applied at the same time.

    A transaction client takes its marks before it executes a transaction, and its marks rise after the commit
    here. So whatever `execute` reads is as new as its mark, or newer, which is safe: no `read` is needed.
    """

    def __init__(
        self,
        engine: Engine | URL | str,
        topic: str,
        *,
        topic_id: str | None = None,
        table: str = "lockstep_marks",
        metadata: sa.MetaData | None = None,
        tries: int = 10,
        first_pause_s: float = 0.05,
    ) -> None:
        """
        Args:
            topic_id: the topic of the marks; a transaction client sets it when it opens.
            table: of the marks; `schema.table` is not taken apart.
            metadata: the application's own; the table of marks is added, `create_tables` creates it all.
            tries: how often something is tried that fails with an error that passes, ...
            first_pause_s: ... and the first pause then; they double, up to 5 s.
        Raises:
            ValueError: the database would be another one in each thread, or one connection for all of them.
            TypeError: `apply_in` is async.
        """
        if inspect.iscoroutinefunction(self.apply_in):
            raise TypeError("apply_in is a plain method: it runs in a thread, and blocks there")
        self.engine = engine if isinstance(engine, Engine) else sa.create_engine(engine)
        if isinstance(self.engine.pool, SingletonThreadPool | StaticPool):
            raise ValueError("threads need connections of their own to one database: use a file")
        self.topic = topic
        self.topic_id = topic_id
        self.metadata = sa.MetaData() if metadata is None else metadata
        self.marks = _marks(self.metadata, table)
        self._tries = tries
        self._first_pause_s = first_pause_s

    def apply_in(self, connection: Connection, committed: Committed) -> None:
        """Apply one transaction, with this connection, in the transaction that it is in.

        It may be called again for the same transaction, after what it did was rolled back, so it should have
        no other effects than those. What would end the transaction raises ForbiddenInCallback.
        """
        raise NotImplementedError

    def create_tables(self) -> None:
        """Create the tables of `metadata` that do not exist yet; several processes may do so at once."""
        for left in reversed(range(len(self.metadata.sorted_tables) + 1)):
            try:
                self._with_retries(lambda: self.metadata.create_all(self.engine))
                return
            except DBAPIError:  # another process created one of them between our look and our statement
                if not left:
                    raise

    def on_open(self, topic_id: str) -> None:
        """Marks of a topic that was re-created under the same name are rejected from now on, as
        HighWaterMarkMismatch."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise HighWaterMarkMismatch(
                f"{self.topic}: the topic's id is {topic_id}, and this application is for {self.topic_id}; "
                f"{_CREATED_ANEW}"
            )
        self.topic_id = topic_id

    def high_water_mark(self, partition: int) -> int | Awaitable[int]:
        """Raises DBAPIError when the database is not to be had, TablesMissing where it has no table of marks,
        HighWaterMarkMismatch for marks of another topic id."""
        return _off_loop(lambda: self._with_retries(functools.partial(self._first_mark, partition)))

    def apply(self, committed: Committed) -> Awaitable[None] | None:
        """Advance the mark and call `apply_in`, in one transaction; or find that it was done, and skip.

        An error after the commit (the response was lost) is tried again, too, and then skipped.
        Raises DBAPIError, HighWaterMarkMismatch, ForbiddenInCallback, and what `apply_in` raises.
        """
        return _off_loop(lambda: self._with_retries(functools.partial(self._apply, committed)))

    @contextlib.contextmanager
    def read(self) -> Iterator[Snapshot]:
        """The state and the marks of one moment, for reports and exports. Nothing is committed."""
        with self.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.begin()
                driver = connection.connection.dbapi_connection
                if not getattr(driver, "in_transaction", False):
                    connection.exec_driver_sql("BEGIN")  # the driver begins none to read
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            rows = connection.execute(
                sa.select(self.marks.c.partition, self.marks.c.hwm).where(self.marks.c.topic == self.topic)
            )
            yield Snapshot(connection, {row.partition: row.hwm for row in rows})

    def _with_retries(self, call: Callable[[], T]) -> T:
        return call_with_retries(call, self._tries, self._first_pause_s)

    def _apply(self, committed: Committed) -> None:
        connection = CallbackConnection(self.engine)
        with connection, connection.begin():
            if not self._advance(connection, committed):
                return
            with connection.guard():
                self.apply_in(connection, committed)
            # a callback that went on after an error may have lost the transaction, and the mark with it
            mark = self._stored_mark(connection, committed.partition)
            if mark != committed.offset:
                raise HighWaterMarkMismatch(f"{committed!r}: the database rolled it back under the callback")

    def _advance(self, connection: Connection, committed: Committed) -> bool:
        """True if the transaction is to be applied; then the row is locked until the transaction ends."""
        moved = connection.execute(
            sa.update(self.marks)
            .where(self._is_row(committed.partition), self.marks.c.hwm == committed.previous)
            .values(hwm=committed.offset)
        )
        if moved.rowcount == 1:
            return True
        mark = self._stored_mark(connection, committed.partition)
        if mark is not None and mark >= committed.offset:
            return False
        raise HighWaterMarkMismatch(
            f"{self.topic}-{committed.partition}: the mark before {committed.offset} should be "
            f"{committed.previous}; in {self.marks.name} it is {'missing' if mark is None else mark}: the "
            "table was changed, or an older database restored; begin with an empty database"
        )

    def _first_mark(self, partition: int) -> int:
        """The mark; there is a row for it afterwards."""
        if not sa.inspect(self.engine).has_table(self.marks.name):
            raise TablesMissing(
                f"{self.engine.url!r} has no table {self.marks.name}: "
                "call create_tables() before the client opens"
            )
        self._require_rollback()
        with contextlib.suppress(IntegrityError), self.engine.begin() as connection:
            if self._stored_mark(connection, partition) is None:
                connection.execute(
                    self._insertion(partition)
                )  # IntegrityError: another process has just done so
        with self.engine.begin() as connection:
            row = self.marks.c.topic_id.is_(None) & self._is_row(partition, of_any_id=True)
            if self.topic_id is not None:
                connection.execute(sa.update(self.marks).where(row).values(topic_id=self.topic_id))
            mark = self._stored_mark(connection, partition)
        if mark is None:
            raise HighWaterMarkMismatch(
                f"{self.topic}-{partition}: the marks in {self.marks.name} of {self.engine.url!r} are those "
                f"of another topic of this name, not of the topic with id {self.topic_id}; {_CREATED_ANEW}"
            )
        return mark

    def _require_rollback(self) -> None:
        """An engine that commits each statement would commit a mark without its effects."""
        with self.engine.connect() as connection:
            connection.execute(self._insertion(_NO_PARTITION))
            connection.rollback()
            row = self._is_row(_NO_PARTITION, of_any_id=True)
            left = connection.execute(sa.delete(self.marks).where(row)).rowcount
            connection.commit()
        if left:
            raise ValueError(
                f"the engine of {self.engine.url!r} commits each statement (AUTOCOMMIT), and transactions "
                "are needed: create it without that isolation level"
            )

    def _stored_mark(self, connection: Connection, partition: int) -> int | None:
        mark: int | None = connection.scalar(sa.select(self.marks.c.hwm).where(self._is_row(partition)))
        return mark

    def _insertion(self, partition: int) -> sa.Insert:
        return sa.insert(self.marks).values(
            topic=self.topic, partition=partition, topic_id=self.topic_id, hwm=-1
        )

    def _is_row(self, partition: int, *, of_any_id: bool = False) -> sa.ColumnElement[bool]:
        row = (self.marks.c.topic == self.topic) & (self.marks.c.partition == partition)
        if self.topic_id is None or of_any_id:
            return row
        return row & (self.marks.c.topic_id == self.topic_id)


def _marks(metadata: sa.MetaData, name: str) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic_id", sa.String(22)),
        sa.Column("hwm", sa.BigInteger, nullable=False),
        keep_existing=True,
    )


def _off_loop(call: Callable[[], T]) -> T | Awaitable[T]:
    """Here, or in a thread when an event loop must continue here."""
    if _is_in_loop():
        return asyncio.to_thread(call)
    return call()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
