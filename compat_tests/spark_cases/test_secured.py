"""Spark's source and sink over TLS with a login, as its options name the Java client's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clients.java import java_words
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.secured.brokers import CERTIFIED, LOGIN, SecuredTarget
from compat_tests.spark_cases.face import Spark, text, values

pytestmark = pytest.mark.spark("newest", "one")


@pytest.fixture(params=[pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets()])
def target(request: pytest.FixtureRequest, world: World) -> Iterator[SecuredTarget]:
    found = world.secured(request.param)
    yield found
    assert found.running, f"the broker died during this case:\n{found.log_tail()}"


@pytest.mark.case("Security", "{login}: the sink writes, the source reads, a stream copies")
@pytest.mark.parametrize("login", ["SCRAM-SHA-512", "mTLS"])
def test_sink_and_source(spark: Spark, target: SecuredTarget, new_topic: NewTopic, login: str) -> None:
    own = target.credentials
    security = own.certified(own.client) if login == "mTLS" else own.login(login)
    listener = CERTIFIED if login == "mTLS" else LOGIN
    words = {"bootstrap.servers": target.bootstrap_of(listener), **java_words(security)}
    secured: dict[str, Any] = {f"kafka.{name}": value for name, value in words.items()}
    topic, copied = new_topic(partitions=2), new_topic()
    spark.write([{"value": text(b"%d" % n)} for n in range(20)], "value", topic=topic, **secured)
    rows = spark.read(subscribe=topic, kept=False, **secured)
    assert sorted(values(rows)) == sorted(b"%d" % n for n in range(20))
    options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": True, **secured}
    with spark.open(sink={"topic": copied, **secured}, kept=False, **options) as stream:
        stream.ended()
    assert len(spark.read(subscribe=copied, kept=False, **secured)) == 20
