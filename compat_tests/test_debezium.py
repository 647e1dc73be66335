"""Debezium's connector for PostgreSQL, unchanged: changes of rows become records through kill -9 of the
worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy

from compat_tests.clients.confluent import Confluent
from compat_tests.connect import DEBEZIUM_POSTGRES, JSON, ConnectWorker
from compat_tests.harness import World
from compat_tests.kafka_jars import skip_or_fail
from compat_tests.probe import HOST, free_port
from compat_tests.targets import Target
from compat_tests.until import until
from tests.lockstep.postgres import Postgres, PostgresMissing, postgres

Change = tuple[Any, ...]
_ITEM = "items"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Postgres, int]]:
    """A PostgreSQL with logical decoding, and its port on loopback."""
    port = free_port()
    settings = {"listen_addresses": HOST, "port": str(port), "wal_level": "logical"}
    try:
        with postgres(settings) as running:
            yield running, port
    except PostgresMissing as missing:
        skip_or_fail(str(missing))


def _changes(world: World, target: Target, topic: str, count: int, timeout_s: float) -> list[Change]:
    """Up to `count` records: key, operation, row before and after; a tombstone is its key and None."""
    client = world.client(Confluent.name, target.name)
    found = client.read(topic, count, isolation="read_committed", timeout_s=timeout_s)
    changes: list[Change] = []
    for record in found:
        key = json.loads(record.key or b"null")
        if record.value is None:
            changes.append((key, None))
        else:
            event = json.loads(record.value)
            changes.append((key, event["op"], event["before"], event["after"]))
    return changes


def _await_topic(world: World, target: Target, topic: str) -> None:
    """Wait until the connector's first record has created the topic."""
    until(True, lambda: topic in world.client(Confluent.name, target.name).topics())


@pytest.mark.case(
    "Debezium",
    "PostgreSQL: snapshot, insert, update and delete of rows, each once through kill -9 of the worker",
)
def test_changes(
    connect: ConnectWorker,
    world: World,
    target: Target,
    server: tuple[Postgres, int],
    unused_name: Callable[[], str],
) -> None:
    database, port = server
    url = database.new_database()
    name = unused_name()
    topic = f"{name}.public.{_ITEM}"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as sql:
        run = sql.exec_driver_sql
        run(f"CREATE TABLE {_ITEM} (id integer PRIMARY KEY, name text NOT NULL)")
        run(f"ALTER TABLE {_ITEM} REPLICA IDENTITY FULL")
        run(f"INSERT INTO {_ITEM} VALUES (1, 'one')")
        connect.create(
            name,
            {
                "connector.class": DEBEZIUM_POSTGRES,
                "plugin.name": "pgoutput",
                "database.hostname": HOST,
                "database.port": str(port),
                "database.user": "lockstep",
                "database.password": "none",
                "database.dbname": sqlalchemy.make_url(url).database or "",
                "topic.prefix": name,
                "table.include.list": f"public.{_ITEM}",
                "slot.name": name.replace("-", "_"),
                "publication.autocreate.mode": "filtered",
                "exactly.once.support": "required",
                "key.converter": JSON,
                "key.converter.schemas.enable": "false",
                "value.converter": JSON,
                "value.converter.schemas.enable": "false",
            },
        )
        _await_topic(world, target, topic)
        one, uno = {"id": 1, "name": "one"}, {"id": 1, "name": "uno"}
        expected: list[Change] = [({"id": 1}, "r", None, one)]
        assert _changes(world, target, topic, 1, 30.0) == expected

        run(f"INSERT INTO {_ITEM} VALUES (2, 'two')")
        run(f"UPDATE {_ITEM} SET name = 'uno' WHERE id = 1")
        expected += [({"id": 2}, "c", None, {"id": 2, "name": "two"}), ({"id": 1}, "u", one, uno)]
        assert _changes(world, target, topic, 3, 30.0) == expected

        connect.kill9()
        run(f"DELETE FROM {_ITEM} WHERE id = 1")
        run(f"INSERT INTO {_ITEM} VALUES (3, 'three')")
        connect.start()
        connect.await_running(name)
        expected += [({"id": 1}, "d", uno, None), ({"id": 1}, None)]
        expected += [({"id": 3}, "c", None, {"id": 3, "name": "three"})]
        assert _changes(world, target, topic, len(expected), 60.0) == expected
        assert _changes(world, target, topic, len(expected) + 1, 1.0) == expected, "no more"
        connect.delete(name)
    engine.dispose()
