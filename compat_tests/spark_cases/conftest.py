"""Fixtures: the session of each version, and topics whose records are stamped minutes apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import harness
from compat_tests.clients.face import Client
from compat_tests.clients.java import Java
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.face import Spark
from compat_tests.spark_cases.transcript import Transcript, compare
from compat_tests.targets import Target

MINUTE_MS = 60_000
STARTED_MS = int(time.time() * 1000)
FIRST_MS = STARTED_MS - 60 * MINUTE_MS
RECORDS = 10


@pytest.fixture(params=[pytest.param(each, id=f"spark-{each}") for each in harness.SPARKS])
def spark_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spark(
    request: pytest.FixtureRequest, world: World, target: Target, spark_version: str, tmp_path: Path
) -> Iterator[Spark]:
    """What Spark answers must be what it answers over Apache Kafka."""
    transcript = Transcript()
    yield Spark(world.spark(spark_version), target.bootstrap, tmp_path, transcript)
    compare(request.node.nodeid.replace(f"on-{target.name}", ""), target.name, transcript)


@pytest.fixture
def java(world: World, target: Target) -> Client:
    """Writes and reads what Spark reads and wrote."""
    return world.client(Java.name, target.name)


@pytest.fixture
def topic(new_topic: NewTopic, raw: RawConnection) -> str:
    """Two partitions of ten records, a minute apart: the first an hour ago."""
    name = new_topic(partitions=2)
    for partition in range(2):
        for n in range(RECORDS):
            value = b"%d/%d" % (partition, n)
            raw.produce(name, batch([value], timestamp_ms=FIRST_MS + n * MINUTE_MS), partition=partition)
    return name
