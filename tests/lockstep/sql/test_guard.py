"""What a callback must not do to its connection, and what it may. The cases have Waltz's names."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from lockstep.sql import ForbiddenInCallback
from tests.lockstep.sql.ledger import Ledger, feed

Action = Callable[[Connection], Any]

NUMBERS: Final = itertools.count()


def _with_statement(connection: Connection) -> None:
    with connection:
        pass


def _transaction(connection: Connection) -> sa.RootTransaction:
    found = connection.get_transaction()
    assert found is not None
    return found


FORBIDDEN: Final[dict[str, Action]] = {
    "testForbiddenCommit": lambda c: c.commit(),
    "testForbiddenCommit-transaction": lambda c: _transaction(c).commit(),
    "testForbiddenCommit-text": lambda c: c.execute(sa.text("COMMIT")),
    "testForbiddenCommit-driver": lambda c: c.exec_driver_sql(" -- done\n commit"),
    "testForbiddenCommit-second": lambda c: c.exec_driver_sql("SELECT 1; COMMIT"),
    "testForbiddenRollback": lambda c: c.rollback(),
    "testForbiddenRollback-transaction": lambda c: _transaction(c).rollback(),
    "testForbiddenRollback-closed": lambda c: _transaction(c).close(),
    "testForbiddenRollback-text": lambda c: c.execute(sa.text("ROLLBACK")),
    "testForbiddenRollback-session": lambda c: _of_session(c).rollback(),
    "testForbiddenBegin": lambda c: c.begin(),
    "testForbiddenBegin-twophase": lambda c: c.begin_twophase(),
    "testForbiddenBegin-text": lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"),
    "testForbiddenBegin-start": lambda c: c.exec_driver_sql("start transaction"),
    "testForbiddenSetAutoCommit": lambda c: c.execution_options(isolation_level="AUTOCOMMIT"),
    "testForbiddenSetTransactionIsolation": lambda c: c.execution_options(isolation_level="SERIALIZABLE"),
    "testForbiddenSetTransactionIsolation-text": lambda c: c.execute(
        sa.text("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    ),
    "testForbiddenSetTransactionIsolation-session": lambda c: c.execute(
        sa.text("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    ),
    "testForbiddenSetCatalog": lambda c: c.execution_options(schema_translate_map={None: "other"}),
    "testForbiddenSetCatalog-text": lambda c: c.execute(sa.text("SET search_path = other")),
    "testForbiddenSetReadOnly": lambda c: c.execution_options(postgresql_readonly=True),
    "testForbiddenSetReadOnly-text": lambda c: c.execute(sa.text("SET TRANSACTION READ ONLY")),
    "testForbiddenUnwrap": lambda c: c.connection,
    "testForbiddenUnwrap-detach": lambda c: c.detach(),
    "testForbiddenUnwrap-invalidate": lambda c: c.invalidate(),
    "testForbiddenClose": lambda c: c.close(),
    "testForbiddenClose-with": _with_statement,
}


def _of_session(connection: Connection) -> Session:
    session = Session(connection)
    session.execute(sa.text("SELECT 1"))
    return session


@pytest.fixture(scope="module")
def shared(database_of_module: str) -> Ledger:
    made = Ledger(database_of_module)
    made.create_tables()
    return made


@pytest.fixture
def ledger(shared: Ledger) -> Ledger:
    shared.in_callback = lambda connection: None
    return shared


@pytest.fixture
def partition(ledger: Ledger) -> int:
    """One that nobody has used; two transactions are applied."""
    number = next(NUMBERS)
    ledger.follow(number, 2)
    return number


def rows(ledger: Ledger) -> list[int]:
    with ledger.engine.connect() as connection:
        return sorted(connection.scalars(sa.select(ledger.totals.c.partition)))


@pytest.mark.parametrize("is_swallowed", [False, True], ids=["", "swallowed"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(ledger: Ledger, partition: int, name: str, is_swallowed: bool) -> None:
    """Nothing of the callback is left, and the next one is applied as ever."""

    def dare(connection: Connection) -> None:
        with contextlib.suppress(ForbiddenInCallback) if is_swallowed else contextlib.nullcontext():
            FORBIDDEN[name](connection)
            pytest.fail("was not refused")
        with contextlib.suppress(sa.exc.SQLAlchemyError):  # a refused end leaves nothing that could go on
            connection.execute(sa.text("INSERT INTO totals VALUES (-7, 1)"))

    before = rows(ledger)
    ledger.in_callback = dare
    with pytest.raises(ForbiddenInCallback, match="ends after the callback") as raised:
        ledger.apply(feed(partition, 3)[2])
    if name.startswith(("testForbiddenCommit", "testForbiddenRollback")):
        assert str(raised.value).lower().startswith(("commit", "rollback"))
    with ledger.engine.begin() as connection:  # if the pool has a transaction left open, this commits it
        connection.execute(sa.text("DELETE FROM totals WHERE partition = -1"))
    ledger.check(partition, 2)
    assert rows(ledger) == before
    ledger.in_callback = lambda connection: None
    ledger.follow(partition, 4)
    ledger.check(partition, 4)


def _nested(connection: Connection) -> None:
    with connection.begin_nested(), connection.begin_nested() as inner:
        connection.execute(sa.text("INSERT INTO totals VALUES (-6, 1)"))
        inner.rollback()


def _orm(connection: Connection) -> None:
    """A session may be closed with the connection open; its commit ends nothing but itself."""
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        session.execute(sa.text("INSERT INTO totals VALUES (-6, 1)"))
        session.rollback()
        session.execute(sa.text("INSERT INTO totals VALUES (-8, 1)"))
        session.commit()
    with Session(connection) as session:
        session.execute(sa.text("INSERT INTO totals VALUES (-9, 1)"))
        session.commit()


def _tables(connection: Connection) -> None:
    metadata = sa.MetaData()
    sa.Table("late", metadata, sa.Column("n", sa.Integer))
    metadata.create_all(connection)
    assert sa.inspect(connection).has_table("late")


ALLOWED: Final[dict[str, Action]] = {
    "savepoint": _nested,
    "savepoint-text": lambda c: [
        c.exec_driver_sql(text) for text in ("SAVEPOINT s", "ROLLBACK TO s", "RELEASE SAVEPOINT s")
    ],
    "session": _orm,
    "tables": _tables,
    "literal": lambda c: c.execute(sa.text("INSERT INTO totals SELECT -5, length('a; COMMIT')")),
    "options-of-a-statement": lambda c: c.execute(
        sa.text("SELECT 1"), execution_options={"stream_results": True}
    ).all(),
}


@pytest.mark.parametrize("action", ALLOWED.values(), ids=ALLOWED)
def test_allowed(ledger: Ledger, partition: int, action: Action) -> None:
    ledger.in_callback = action
    ledger.apply(feed(partition, 3)[2])
    ledger.check(partition, 3)


def test_a_connection_that_outlives_its_callback_is_closed(ledger: Ledger, partition: int) -> None:
    kept: list[Connection] = []
    ledger.in_callback = kept.append
    ledger.apply(feed(partition, 3)[2])
    with pytest.raises(sa.exc.ResourceClosedError):
        kept[0].execute(sa.text("SELECT 1"))
