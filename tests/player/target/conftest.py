"""An application over each kind of store, with a store of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lockstep.postgres import Postgres
from tests.player.target.stores import FileLedger, Ledger, PostgresLedger, SqliteLedger


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> SqliteLedger:
    return SqliteLedger(tmp_path / "state.db")


@pytest.fixture
def postgres_ledger(postgres_server: Postgres) -> Iterator[PostgresLedger]:
    database = postgres_server.new_database()
    yield PostgresLedger(database)
    postgres_server.drop(database)


@pytest.fixture
def file_ledger(tmp_path: Path) -> FileLedger:
    return FileLedger(tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "file"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    found: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    return found
