"""A broker dies by kill -9 under a stream, on brokers of the case's own: Spark neither loses nor repeats.

Apache Kafka flushes each append here, so that both promise the same. Of three nodes the one that leads what
the stream reads is killed, and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.own_targets import EACH_TARGET, FLUSHED, SOON_MISSED, kill_leader, own_target
from compat_tests.raw import batch, raw_connection
from compat_tests.spark_cases.conftest import FIRST_MS
from compat_tests.spark_cases.face import Spark, values
from compat_tests.targets import Target
from compat_tests.until import until

AREA = "Spark source: brokers that die"
OFTEN = {"processingTime": "200 milliseconds"}
WAIT_S = 60.0


@pytest.fixture(params=EACH_TARGET)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with own_target(request.param, {**FLUSHED, **SOON_MISSED}) as running:
        yield running


def write(target: Target, word: bytes, count: int) -> list[bytes]:
    found = [word + b" %d" % n for n in range(count)]
    with raw_connection(target.bootstrap) as raw:
        # A broker that is back answers before it leads its partitions again.
        until(0, lambda: raw.list_offset("read", -1)["error_code"], WAIT_S)
        assert raw.produce("read", batch(found, timestamp_ms=FIRST_MS))["error_code"] == 0
    return found


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "kill -9 between batches and between runs: each record once")
def test_killed(spark: Spark, target: Target) -> None:
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic("read")
    how: dict[str, Any] = {"subscribe": "read", "startingOffsets": "earliest", "kept": False}
    how |= {"fetchOffset.numRetries": "30", "kafka.default.api.timeout.ms": "90000"}
    written = write(target, b"before", 50)
    with spark.open(trigger=OFTEN, **how) as query:
        query.took(50)
        kill_leader(target, "read")
        written += write(target, b"after", 30)
        query.took(80)
    kill_leader(target, "read")
    written += write(target, b"again", 20)
    taken = spark.stream(**how)
    assert (values(taken.rows), taken.count) == (written, 20)
    spark.note("rows", [each | {"timestamp": None} for each in taken.rows])
