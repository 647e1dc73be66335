"""Both transaction clients with one database: what they compute from it is what is in the log."""

from __future__ import annotations

import asyncio
import traceback
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lockstep.kafka_client.client import Client
from lockstep.sql import HighWaterMarkMismatch, SqlApplication
from lockstep.testing import RunningBroker
from lockstep.transactions import (
    BlockingTransactionClient,
    Committed,
    Draft,
    Transaction,
    TransactionClient,
    TransactionError,
)
from tests.lockstep.transactions.accounts import locked_topic


class Counts(SqlApplication):
    """What each key counts, and each count that was ever applied."""

    def __init__(self, database: str, topic: str) -> None:
        super().__init__(database, topic, metadata=sa.MetaData())
        self.counts = sa.Table(
            "counts",
            self.metadata,
            sa.Column("key", sa.LargeBinary, primary_key=True),
            sa.Column("count", sa.Integer),
        )
        self.history = sa.Table(
            "history", self.metadata, sa.Column("key", sa.LargeBinary), sa.Column("count", sa.Integer)
        )
        self.create_tables()

    def apply_in(self, connection: Connection, committed: Committed) -> None:
        values = {"key": committed.key, "count": int(committed.value or b"")}
        connection.execute(sa.insert(self.history).values(values))
        connection.execute(sa.delete(self.counts).where(self.counts.c.key == committed.key))
        connection.execute(sa.insert(self.counts).values(values))

    def count(self, key: bytes) -> int:
        with self.engine.connect() as connection:
            return connection.scalar(sa.select(self.counts.c.count).where(self.counts.c.key == key)) or 0

    def applied(self, key: bytes) -> list[int]:
        with self.engine.connect() as connection:
            query = sa.select(self.history.c.count).where(self.history.c.key == key)
            return sorted(connection.scalars(query))


class Increment(Transaction):
    def __init__(self, counts: Counts, key: bytes) -> None:
        self.counts = counts
        self.key = key

    def partition(self, partitions: int) -> int:
        return self.key[0] % partitions

    def execute(self, draft: Draft) -> None:
        draft.write_lock(self.key)
        draft.add(b"%d" % (self.counts.count(self.key) + 1), key=self.key)


class AsyncIncrement(Increment):
    async def execute(self, draft: Draft) -> None:  # type: ignore[override]
        await asyncio.to_thread(super().execute, draft)


async def test_two_clients_with_one_database(running: RunningBroker, database: str) -> None:
    topic = await locked_topic(running.bootstrap_servers, partitions=2)
    times, keys = 10, (b"a", b"b")

    def blocking() -> None:
        counts = Counts(database, topic)
        with BlockingTransactionClient(running.bootstrap_servers, topic, counts) as client:
            for key in keys * times:
                assert client.execute(Increment(counts, key)) is not None

    in_thread = asyncio.create_task(asyncio.to_thread(blocking))
    counts = await asyncio.to_thread(Counts, database, topic)
    async with TransactionClient(running.bootstrap_servers, topic, counts) as client:
        for key in keys * times:
            assert await client.execute(AsyncIncrement(counts, key)) is not None
        await in_thread
        await client.caught_up()
        marks = {partition: client.high_water_mark(partition) for partition in (0, 1)}
    for key in keys:
        assert await asyncio.to_thread(counts.applied, key) == list(range(1, 2 * times + 1))
        assert await asyncio.to_thread(counts.count, key) == 2 * times
    with counts.read() as (_, stored):
        assert stored == marks


async def _create_anew(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        await client.delete_topic(topic)
        await client.create_topic(topic, configs={"lockstep.locks": "true"})


def test_a_topic_created_again_beside_the_database_is_one_clear_line(
    running: RunningBroker, database: str
) -> None:
    topic = f"t-{uuid4().hex}"
    counts = Counts(database, topic)
    with BlockingTransactionClient(running.bootstrap_servers, topic, counts, create=1) as client:
        client.execute(Increment(counts, b"a"))
    asyncio.run(_create_anew(running, topic))
    with (
        pytest.raises(HighWaterMarkMismatch) as caught,
        BlockingTransactionClient(running.bootstrap_servers, topic, Counts(database, topic)),
    ):
        pass
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback") == 1, "no second error behind it"
    assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][1:] == [
        "__enter__",
        "open",
        "_wait",
    ]
    last = printed.splitlines()[-1]
    assert f"{topic}-0: the marks in lockstep_marks of " in last
    assert last.endswith("delete the state and its marks, or use another database")


def test_a_topic_created_again_under_a_client_is_one_line_in_the_log(
    running: RunningBroker, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"t-{uuid4().hex}"
    counts = Counts(database, topic)
    with BlockingTransactionClient(running.bootstrap_servers, topic, counts, create=1) as client:
        client.execute(Increment(counts, b"a"))
        asyncio.run(_create_anew(running, topic))
        with pytest.raises(TransactionError, match="was deleted and re-created meanwhile; start again"):
            client.execute(Increment(counts, b"a"), timeout_s=20)
    logged = [record for record in caplog.records if record.name == "lockstep.transactions"]
    assert [record.exc_info for record in logged] == [None]
    assert logged[0].getMessage() == (
        f"partition 0, offset 1: TopicDeleted: topic {topic} was deleted and re-created meanwhile; "
        "start again to use the new topic"
    )
