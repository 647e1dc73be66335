"""Real-time mode (Spark 4.2): from the source into the sink within one long task a partition."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.clients.face import Client, Message
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.conftest import FIRST_MS
from compat_tests.spark_cases.face import Spark

AREA = "Spark: real-time mode"
WAIT_S = 60.0
REAL_TIME: dict[str, Any] = {"trigger": {"realTime": "5 seconds"}, "mode": "update", "kept": False}
pytestmark = pytest.mark.spark("newest")


def write(raw: RawConnection, topic: str, first: int, count: int, partition: int = 0) -> None:
    found = [b"%d" % n for n in range(first, first + count)]
    answer = raw.produce(topic, batch(found, timestamp_ms=FIRST_MS), partition=partition)
    assert answer["error_code"] == 0, answer


def arrived(raw: RawConnection, topic: str, count: int) -> float:
    """Wait for so many records; seconds it took."""
    began = time.monotonic()
    while raw.list_offset(topic, -1)["offset"] < count:
        assert time.monotonic() < began + WAIT_S, f"{raw.list_offset(topic, -1)} after {WAIT_S} s"
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.case(AREA, "records pass while its batch runs; it goes on from its checkpoint")
def test_passing(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    source, sink = new_topic(partitions=2), new_topic()
    how: dict[str, Any] = {"subscribe": source, "startingOffsets": "earliest", **REAL_TIME}
    how |= {"sink": {"topic": sink}, "columns": ["value"]}
    write(raw, source, 0, 10)
    with spark.open(**how) as query:
        arrived(raw, sink, 10)
        for n in range(10, 40, 10):  # some of them within one batch of 5 s
            write(raw, source, n, 10, partition=n // 10 % 2)
            arrived(raw, sink, n + 10)
        query.took(40)  # told at the end of a batch
    write(raw, source, 40, 5, partition=1)
    with spark.open(**how) as query:
        arrived(raw, sink, 45)
        query.took(5)
    written = java.read(sink, 45)
    assert {each.value for each in written} == {b"%d" % n for n in range(45)}
    spark.note("ends", [raw.list_offset(source, -1, partition=n)["offset"] for n in range(2)])


@pytest.mark.case(AREA, "{option} is refused")
@pytest.mark.parametrize(
    "option",
    ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "endingTimestamp", "maxTriggerDelay"],
)
def test_refused(spark: Spark, topic: str, new_topic: NewTopic, option: str) -> None:
    how: dict[str, Any] = {"subscribe": topic, "sink": {"topic": new_topic()}, "columns": ["value"]}
    how |= {**REAL_TIME, option: "5"}

    def run() -> None:
        with spark.open(**how) as query:
            query.ended()

    spark.fails(run).says("UnsupportedOperationException", "is not compatible with real time mode")


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "read_committed: an open transaction holds its records back, a commit lets them pass")
def test_read_committed(
    spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic, unused_name: Any
) -> None:
    source, sink = new_topic(), new_topic()
    producer = java.transactional(unused_name())
    try:
        how: dict[str, Any] = {"subscribe": source, "kafka.isolation.level": "read_committed"}
        how |= {"startingOffsets": "earliest", "sink": {"topic": sink}, "columns": ["value"], **REAL_TIME}
        for word, end in ((b"aborted", producer.abort), (b"committed", producer.commit)):
            producer.begin()
            producer.send(source, [Message(word)])
            end()
        with spark.open(**how) as query:
            arrived(raw, sink, 1)
            producer.begin()
            producer.send(source, [Message(b"open")])
            query.took(1)
            assert raw.list_offset(sink, -1)["offset"] == 1
            producer.commit()
            arrived(raw, sink, 2)
            query.took(2)
    finally:
        producer.close()
    assert [each.value for each in java.read(sink, 2)] == [b"committed", b"open"]
