"""What is read when records, partitions or topics are gone: `failOnDataLoss`, true and false."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.clients.face import Client
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.conftest import FIRST_MS
from compat_tests.spark_cases.face import Spark, places, values
from compat_tests.until import until

AREA = "Spark source: failOnDataLoss"
EARLIEST: dict[str, Any] = {
    "startingOffsets": "earliest",
    "kafkaConsumer.pollTimeoutMs": "20000",
    "fetchOffset.retryIntervalMs": "10",
    "kafka.allow.auto.create.topics": "false",
}
"""An executor's consumer outlives its read for minutes: it would make a deleted topic again."""
CAREFREE: dict[str, Any] = {"failOnDataLoss": False}
WAIT_S = 60.0


def write(raw: RawConnection, topic: str, count: int, partition: int = 0, word: bytes = b"new") -> None:
    found = [word + b" %d" % n for n in range(count)]
    answer = raw.produce(topic, batch(found, timestamp_ms=FIRST_MS), partition=partition)
    assert answer["error_code"] == 0, answer


def is_unknown(raw: RawConnection, topic: str) -> bool:
    """Asked without making it again."""
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return bool(raw.call("metadata", 12, **asked)["topics"][0]["error_code"] == 3)


def delete(raw: RawConnection, java: Client, topic: str) -> None:
    """And wait until nobody knows it."""
    java.delete_topic(topic)
    until(True, lambda: is_unknown(raw, topic), WAIT_S)


@pytest.mark.case(AREA, "batch, records deleted: earliest is the new beginning")
def test_deleted(spark: Spark, java: Client, topic: str) -> None:
    java.delete_records(topic, 0, 6)
    assert places(spark.read(assign={topic: [0]})) == [(0, n) for n in range(6, 10)]


@pytest.mark.case(AREA, "batch from deleted offsets: true fails, false begins where records are")
def test_from_deleted(spark: Spark, java: Client, topic: str) -> None:
    java.delete_records(topic, 0, 6)
    how: dict[str, Any] = {"assign": {topic: [0]}, "startingOffsets": {topic: {"0": 2}}}
    for strict in ({}, {"failOnDataLoss": True}):
        spark.fails(spark.read, **how, **strict).says("", "Some data may have been lost")
    assert places(spark.read(**how, **CAREFREE)) == [(0, n) for n in range(6, 10)]
    gone = {"endingOffsets": {topic: {"0": 5}}}
    assert spark.read(**how, **gone, **CAREFREE) == [], "all that was asked for is gone"


@pytest.mark.case(AREA, "batch to offsets that are not there yet: true fails, false reads what there is")
def test_beyond_end(spark: Spark, topic: str) -> None:
    how: dict[str, Any] = {"assign": {topic: [0]}, "endingOffsets": {topic: {"0": 15}}}
    poll = "kafkaConsumer.pollTimeoutMs"
    spark.fails(spark.read, **how, **{poll: "3000"}).says("", "")
    # On a busy machine the first records of a new consumer may take seconds: no poll for them may end before.
    assert places(spark.read(**how, **CAREFREE, **{poll: "20000"})) == [(0, n) for n in range(10)]


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "stream, records behind its checkpoint deleted: true fails, false skips them")
def test_stream_deleted(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(raw, topic, 5)
    assert spark.stream(subscribe=topic, **EARLIEST).count == 5
    for _ in range(3):
        write(raw, topic, 5)
    java.delete_records(topic, 0, 12)
    failure = spark.fails(spark.stream, subscribe=topic, **EARLIEST)
    failure.says("", "Some data may have been lost")
    rows = spark.stream(subscribe=topic, kept=False, **EARLIEST, **CAREFREE).rows
    assert places(rows) == [(0, n) for n in (*range(5), *range(12, 20))]
    spark.note("rows", rows)


@pytest.mark.case(AREA, "stream, every record deleted that it has not read")
def test_stream_all_deleted(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(raw, topic, 5)
    assert spark.stream(subscribe=topic, **EARLIEST).count == 5
    write(raw, topic, 5)
    java.delete_records(topic, 0, 10)
    spark.fails(spark.stream, subscribe=topic, **EARLIEST).says("", "Some data may have been lost")
    assert len(spark.stream(subscribe=topic, kept=False, **EARLIEST, **CAREFREE).rows) == 5
    write(raw, topic, 2)
    rows = spark.stream(subscribe=topic, kept=False, **EARLIEST, **CAREFREE).rows
    assert places(rows) == [(0, n) for n in (*range(5), 10, 11)]


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "stream, topic deleted and made again with fewer records: true fails, false reads on")
def test_stream_made_again(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(raw, topic, 10, word=b"old")
    assert spark.stream(subscribe=topic, **EARLIEST).count == 10
    delete(raw, java, topic)
    raw.create_topic(topic)
    write(raw, topic, 4)
    spark.fails(spark.stream, subscribe=topic, **EARLIEST).says("", "")
    carefree: dict[str, Any] = {"subscribe": topic, "kept": False, **EARLIEST, **CAREFREE}
    found = values(spark.stream(**carefree).rows)
    spark.note("after the first run", [each.decode() for each in found])
    write(raw, topic, 4, word=b"newer")
    found = values(spark.stream(**carefree).rows)
    spark.note("after the second run", [each.decode() for each in found])
    assert {b"old %d" % n for n in range(10)} <= set(found)


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "stream, topic deleted and made again with more records: goes on at its offset")
def test_stream_made_longer(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(raw, topic, 5, word=b"old")
    assert spark.stream(subscribe=topic, **EARLIEST).count == 5
    delete(raw, java, topic)
    raw.create_topic(topic)
    write(raw, topic, 8)
    taken = spark.stream(subscribe=topic, **EARLIEST)
    assert values(taken.rows) == [b"old %d" % n for n in range(5)] + [b"new %d" % n for n in range(5, 8)]


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "stream by pattern, a topic deleted: true fails, false goes on with the other")
def test_stream_topic_gone(spark: Spark, java: Client, raw: RawConnection, unused_name: Any) -> None:
    prefix = unused_name()
    for name in (f"{prefix}-a", f"{prefix}-b"):
        raw.create_topic(name)
        write(raw, name, 3)
    how: dict[str, Any] = {"subscribePattern": f"{prefix}-.*", **EARLIEST}
    assert spark.stream(**how).count == 6
    delete(raw, java, f"{prefix}-b")
    write(raw, f"{prefix}-a", 2)
    spark.fails(spark.stream, **how).says("", "have been deleted")
    taken = spark.stream(kept=False, **how, **CAREFREE)
    assert [(each["topic"][-1], each["offset"]) for each in taken.rows] == [
        *(("a", n) for n in range(5)),
        *(("b", n) for n in range(3)),
    ]


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "stream, its only topic deleted: the broker's error")
def test_stream_only_topic_gone(spark: Spark, java: Client, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(raw, topic, 3)
    assert spark.stream(subscribe=topic, **EARLIEST).count == 3
    delete(raw, java, topic)
    for how in ({}, CAREFREE):
        failure = spark.fails(spark.stream, subscribe=topic, **EARLIEST, **how)
        failure.says("UnknownTopicOrPartitionException", "")


@pytest.mark.spark("whole")
@pytest.mark.case(AREA, "stream, a new partition without its first records: true fails, false begins later")
def test_new_partition_deleted(spark: Spark, java: Client, raw: RawConnection, topic: str) -> None:
    assert spark.stream(subscribe=topic, **EARLIEST).count == 20
    java.add_partitions(topic, 3)
    until(0, lambda: raw.list_offset(topic, -1, partition=2)["error_code"], WAIT_S)
    write(raw, topic, 6, partition=2)
    java.delete_records(topic, 2, 4)
    failure = spark.fails(spark.stream, subscribe=topic, **EARLIEST)
    failure.says("", "starts from 4 instead of 0")
    rows = spark.stream(subscribe=topic, kept=False, **EARLIEST, **CAREFREE).rows
    assert places(rows)[20:] == [(2, 4), (2, 5)]
