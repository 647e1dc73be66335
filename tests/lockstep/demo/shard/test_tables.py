"""The shard's tables, in both databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstep.demo.shard.tables import Tables
from lockstep.target import Delivered, EntryRecords, LogName, Record
from tests.lockstep.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Tables, Any]]:
    """The tables, and a connection in one transaction."""
    if request.param == "sqlite":
        tables = Tables(False)
        with contextlib.closing(sqlite3.connect(tmp_path / "shard.db")) as connection:
            tables.create(connection)
            yield tables, connection
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    made = server.new_database()
    tables = Tables(True)
    with psycopg.connect(made.replace("+psycopg", "")) as session:
        tables.create(session)
        yield tables, session
    server.drop(made)


def delivered(partition: int, *records: tuple[int, bytes | None, bytes | None]) -> Delivered:
    made = [Record(offset, 0, key, value, []) for offset, key, value in records]
    name = LogName(f"c/orders/{partition}", "orders", partition)
    entries = [EntryRecords(made[-1].offset, made, partition)]
    return Delivered(name, made[0].offset - 1, made[-1].offset, entries)


def values(connection: Any) -> list[tuple[bytes, bytes, int]]:
    rows = connection.execute(
        "SELECT record_key, record_value, record_offset FROM shard_values ORDER BY record_key"
    ).fetchall()
    return [(bytes(key), bytes(value), offset) for key, value, offset in rows]


def test_the_newest_value_of_each_key(database: tuple[Tables, Any]) -> None:
    tables, connection = database
    tables.apply(connection, delivered(0, (0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"3"), (3, None, b"4")))
    assert values(connection) == [(b"a", b"3", 2), (b"b", b"2", 1)]
    tables.apply(connection, delivered(0, (5, b"a", None), (6, b"b", None), (7, b"b", b"5")))
    assert values(connection) == [(b"b", b"5", 7)]


def test_an_audit(database: tuple[Tables, Any]) -> None:
    tables, connection = database
    assert str(tables.audit(connection)) == "records=0 keys=0 problems=0"
    tables.apply(connection, delivered(0, (0, b"a", b"1"), (4, b"b", b"2")))
    tables.apply(connection, delivered(1, (3, b"c", b"1")))
    assert str(tables.audit(connection)) == "records=3 keys=3 problems=0 c/orders/0 to 4, c/orders/1 to 3"
    tables.apply(connection, delivered(0, (4, b"b", b"2")))
    tables.apply(connection, delivered(0, (2, b"b", b"2")))
    found = tables.audit(connection)
    assert found.problems == [
        "c/orders/0: 4 was applied after 4",
        "c/orders/0: 2 was applied after 4",
    ]
    assert found.last_offsets == {"c/orders/0": 4, "c/orders/1": 3}


def test_a_log_of_several_partitions_is_audited_by_partition(database: tuple[Tables, Any]) -> None:
    tables, connection = database
    made = [
        EntryRecords(position, [Record(offset, 0, b"k", b"%d" % position, [])], partition)
        for position, partition, offset in ((10, 1, 5), (11, 0, 2), (12, 1, 6))
    ]
    tables.apply(connection, Delivered(LogName("c/orders/g", "orders", -1), 9, 12, made))
    found = tables.audit(connection)
    assert not found.problems and found.last_offsets == {"c/orders/g/0": 2, "c/orders/g/1": 6}
    assert values(connection) == [(b"k", b"12", 6)]
