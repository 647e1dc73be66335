"""Marks and effects in one transaction, on SQLite and PostgreSQL. Waltz's names are in docstrings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.pool import StaticPool

from lockstep.sql import HighWaterMarkMismatch, SqlApplication, TablesMissing
from lockstep.transactions.model import Committed, Record
from tests.lockstep.sql.ledger import Ledger, feed


@pytest.fixture
def ledger(database: str) -> Ledger:
    made = Ledger(database)
    made.create_tables()
    return made


def set_mark(ledger: Ledger, hwm: int) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(sa.update(ledger.marks).values(hwm=hwm))


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [done.result() for done in [threads.submit(call) for call in calls]]


def test_a_feed_is_applied_with_its_gaps(ledger: Ledger) -> None:
    assert ledger.mark() == -1
    ledger.follow(0, 20)
    ledger.check(0, 20)


def test_missing_tables_are_named_with_the_call_that_creates_them(database: str) -> None:
    with pytest.raises(TablesMissing, match=r"has no table lockstep_marks: call create_tables\(\) before"):
        Ledger(database).mark()


def test_another_process_goes_on_where_the_first_one_was(ledger: Ledger, database: str) -> None:
    ledger.follow(0, 5)
    other = Ledger(database)
    other.follow(0, 9)
    other.check(0, 9)
    assert other.calls == 4


def test_what_was_applied_is_skipped(ledger: Ledger) -> None:
    ledger.follow(0, 5)
    for committed in feed(0, 5):
        ledger.apply(committed)
    ledger.check(0, 5)
    assert ledger.calls == 5


def test_topics_and_partitions_have_marks_of_their_own(ledger: Ledger, database: str) -> None:
    other = Ledger(database, topic="other")
    ledger.follow(0, 3)
    ledger.follow(1, 4)
    assert other.mark(0) == -1
    assert (ledger.mark(0), ledger.mark(1)) == (feed(0, 3)[-1].offset, feed(1, 4)[-1].offset)


def test_a_mark_in_between_stalls(ledger: Ledger) -> None:
    """Neither what was applied before nor beyond: somebody changed it. Nothing is applied."""
    ledger.follow(0, 3)
    set_mark(ledger, feed(0, 3)[0].offset)
    with pytest.raises(
        HighWaterMarkMismatch,
        match=r"ledger-0: the mark before \d+ should be \d+; in lockstep_marks it is \d",
    ):
        ledger.apply(feed(0, 4)[3])
    assert len(ledger.applied()) == 3


def test_a_missing_row_stalls(ledger: Ledger) -> None:
    with pytest.raises(HighWaterMarkMismatch, match="missing"):
        ledger.apply(feed(0, 1)[0])
    assert ledger.applied() == []


def test_an_error_of_the_callback_leaves_nothing(ledger: Ledger) -> None:
    def fail(connection: Connection) -> None:
        raise RuntimeError("no such account")

    mark = ledger.mark()
    ledger.in_callback = fail
    with pytest.raises(RuntimeError, match="no such account"):
        ledger.apply(feed(0, 1)[0])
    assert (ledger.applied(), ledger.mark(), ledger.calls) == ([], mark, 1)


def test_a_callback_that_swallows_an_error_of_the_database(ledger: Ledger) -> None:
    """PostgreSQL rolls all of it back then, and says so only if asked; SQLite goes on."""

    def swallow(connection: Connection) -> None:
        with pytest.raises(sa.exc.DBAPIError):
            connection.execute(sa.text("SELECT * FROM nowhere"))

    ledger.mark()
    ledger.in_callback = swallow
    if ledger.engine.dialect.name == "sqlite":
        ledger.apply(feed(0, 1)[0])
        ledger.check(0, 1)
    else:
        with pytest.raises(sa.exc.DBAPIError):
            ledger.apply(feed(0, 1)[0])
        assert (ledger.applied(), ledger.mark()) == ([], -1)


def test_a_database_that_rolled_back_under_the_callback(sqlite_database: str) -> None:
    """Some conflicts make SQLite end the transaction; what follows would be committed without a mark."""
    ledger = Ledger(sqlite_database)
    ledger.create_tables()

    def swallow(connection: Connection) -> None:
        connection.execute(sa.text("INSERT INTO totals VALUES (7, 1)"))
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(sa.text("INSERT OR ROLLBACK INTO totals VALUES (7, 1)"))

    ledger.mark()
    ledger.in_callback = swallow
    with pytest.raises(HighWaterMarkMismatch, match="rolled it back"):
        ledger.apply(feed(0, 1)[0])
    assert (ledger.applied(), ledger.mark()) == ([], -1)


def test_a_callback_may_roll_back_to_a_savepoint(ledger: Ledger) -> None:
    def retreat(connection: Connection) -> None:
        with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(sa.text("INSERT INTO totals VALUES (7, 1)"))
            connection.execute(sa.text("INSERT INTO totals VALUES (7, 1)"))
        with connection.begin_nested():
            connection.execute(sa.text("INSERT INTO totals VALUES (8, 1)"))

    ledger.mark()
    ledger.in_callback = retreat
    ledger.apply(feed(0, 1)[0])
    ledger.check(0, 1)
    with ledger.engine.connect() as connection:
        assert sorted(connection.scalars(sa.text("SELECT partition FROM totals"))) == [0, 8]


def test_several_create_the_tables_and_the_rows_at_once(database: str) -> None:
    ledgers = [Ledger(database) for _ in range(6)]
    together = threading.Barrier(len(ledgers))

    def begin(ledger: Ledger) -> int:
        together.wait()
        ledger.create_tables()
        together.wait()
        return ledger.mark()

    assert at_once(*(lambda ledger=ledger: begin(ledger) for ledger in ledgers)) == [-1] * len(ledgers)


def test_a_topic_that_was_made_again(ledger: Ledger, database: str) -> None:
    """Marks that were written without an id are taken over; those of another id are refused."""
    ledger.follow(0, 3)
    first = Ledger(database, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
    first.follow(0, 4)
    first.check(0, 4)
    with pytest.raises(
        HighWaterMarkMismatch, match="this application is for AAAAAAAAAAAAAAAAAAAAAA; if the topic"
    ):
        first.on_open("BBBBBBBBBBBBBBBBBBBBBB")
    anew = Ledger(database)
    anew.on_open("BBBBBBBBBBBBBBBBBBBBBB")
    with pytest.raises(HighWaterMarkMismatch, match="another topic of this name") as caught:
        anew.mark()
    assert str(caught.value).endswith("delete the state and its marks, or use another database")
    with pytest.raises(HighWaterMarkMismatch, match="missing"):
        anew.apply(feed(0, 5)[4])
    first.check(0, 4)


def test_an_engine_in_autocommit_is_refused(database: str) -> None:
    """A mark would be there before its effects."""
    ledger = Ledger(database, options={"isolation_level": "AUTOCOMMIT"})
    ledger.create_tables()
    with pytest.raises(ValueError, match="AUTOCOMMIT"):
        ledger.mark()
    with ledger.engine.connect() as connection:
        assert connection.execute(sa.select(ledger.marks)).all() == []


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="use a file"):
        SqlApplication("sqlite://", "t")
    with pytest.raises(ValueError, match="use a file"):
        SqlApplication(sa.create_engine("sqlite://", poolclass=StaticPool), "t")


def test_an_async_callback_is_refused(database: str) -> None:
    class Wrong(SqlApplication):
        async def apply_in(self, connection: Connection, committed: Committed) -> None:  # type: ignore[override]
            raise NotImplementedError

    with pytest.raises(TypeError, match="plain method"):
        Wrong(database, "t")


async def test_on_an_event_loop_it_blocks_a_thread_only(ledger: Ledger) -> None:
    loop, went_on = asyncio.get_running_loop(), threading.Event()

    def wait(connection: Connection) -> None:
        loop.call_soon_threadsafe(went_on.set)
        assert went_on.wait(30)

    coming = ledger.high_water_mark(0)
    assert not isinstance(coming, int)
    assert await coming == -1
    ledger.in_callback = wait
    applying = ledger.apply(feed(0, 1)[0])
    assert applying is not None
    await applying
    assert await asyncio.to_thread(ledger.applied) == [feed(0, 1)[0].offset]


async def test_partitions_may_be_applied_at_the_same_time(postgres_database: str) -> None:
    """Each waits in its callback until the other one is in its own."""
    ledger = Ledger(postgres_database)
    await asyncio.to_thread(ledger.create_tables)
    both = threading.Barrier(2)
    ledger.in_callback = lambda connection: both.wait(30)
    for partition in (0, 1):
        mark = ledger.high_water_mark(partition)
        assert not isinstance(mark, int) and await mark == -1
    applying = [ledger.apply(feed(partition, 1)[0]) for partition in (0, 1)]
    await asyncio.gather(*(one for one in applying if one is not None))
    for partition in (0, 1):
        await asyncio.to_thread(ledger.check, partition, 1)


def test_two_apply_the_same_transaction_at_once(ledger: Ledger, database: str) -> None:
    """Waltz's testConcurrentClients within one process; test_processes has it with several."""
    ledgers = [ledger, *(Ledger(database) for _ in range(2))]
    ledger.mark()
    together = threading.Barrier(len(ledgers))

    def follow(one: Ledger) -> None:
        for committed in feed(0, 15):
            together.wait()
            one.apply(committed)

    at_once(*(lambda one=one: follow(one) for one in ledgers))
    ledger.check(0, 15)


def test_a_snapshot_holds_its_marks_to_its_state(ledger: Ledger, database: str) -> None:
    ledger.follow(0, 3)
    with ledger.read() as (connection, marks):
        writer = Ledger(database, options={"connect_args": {"timeout": 0}} if "sqlite" in database else None)
        writer._tries = 1
        if "sqlite" in database:  # whoever reads keeps the writer waiting
            with pytest.raises(sa.exc.OperationalError, match="locked"):
                writer.apply(feed(0, 4)[3])
        else:
            writer.apply(feed(0, 4)[3])
        assert marks == {0: feed(0, 3)[-1].offset}
        assert connection.scalar(sa.select(sa.func.count()).select_from(ledger.effects)) == 3
    ledger.follow(0, 4)
    ledger.check(0, 4)


def test_a_record_of_another_producer_is_applied_as_well(ledger: Ledger) -> None:
    ledger.mark()
    ledger.apply(Committed(0, 12, (Record(b"5"),)))
    assert (ledger.mark(), ledger.applied()) == (12, [12])


def test_the_example_of_the_documentation(sqlite_database: str) -> None:
    """Its application alone; `tests/test_readme.py` runs all of it, beside a broker."""
    text = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
    example = text.partition("```python\n")[2].partition("\nwith BlockingTransactionClient")[0]
    assert "sqlite:///bank.db" in example
    names: dict[str, Any] = {}
    exec(example.replace("sqlite:///bank.db", sqlite_database), names)
    accounts, application = names["accounts"], names["application"]
    with application.engine.begin() as connection:
        connection.execute(sa.insert(accounts).values(name="ann", balance=5))
    assert application.high_water_mark(0) == -1
    application.apply(Committed(0, 3, (Record(b'{"name": "ann", "by": 2}'),)))
    with application.read() as (connection, marks):
        assert (connection.execute(sa.select(accounts)).all(), marks) == ([("ann", 7)], {0: 3})


def test_only_this_package_needs_sqlalchemy() -> None:
    without = "import sys; sys.modules['sqlalchemy'] = None; import lockstep, lockstep.transactions\n"
    done = subprocess.run(
        [sys.executable, "-c", without + "import lockstep.sql"], capture_output=True, text=True, check=False
    )
    assert "ImportError: lockstep.sql needs SQLAlchemy: pip install -e '.[sql]' in the clone" in done.stderr
    assert done.stderr.count("Traceback") == 1
