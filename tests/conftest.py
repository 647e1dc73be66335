"""What tests of several packages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.kafka_jars import skip_or_fail
from tests.lockstep.postgres import Postgres, PostgresMissing, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real PostgreSQL; make a database of your own in it."""
    try:
        with postgres() as server:
            yield server
    except PostgresMissing as missing:
        skip_or_fail(str(missing))
