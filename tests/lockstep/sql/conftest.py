"""A database for each test: a SQLite file, then a database of a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lockstep.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty one."""
    found: str = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def postgres_database(postgres_server: Postgres) -> Iterator[str]:
    made = postgres_server.new_database()
    yield made
    postgres_server.drop(made)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database_of_module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all tests of a file."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('module') / 'state.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.new_database()
