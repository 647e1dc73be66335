"""`kafka.isolation.level`: whose transaction a read sees, and gaps where nothing is to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.clients.face import Client, Message, Transactional
from compat_tests.conftest import NewTopic
from compat_tests.spark_cases.conftest import FIRST_MS
from compat_tests.spark_cases.face import Spark, values

AREA = "Spark source: transactions and gaps"
EARLIEST: dict[str, Any] = {"startingOffsets": "earliest"}
COMMITTED: dict[str, Any] = {"kafka.isolation.level": "read_committed"}


def send(producer: Transactional, topic: str, word: str, count: int) -> None:
    found = [Message(f"{word} {n}".encode(), timestamp_ms=FIRST_MS + n) for n in range(count)]
    producer.send(topic, found)


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [each.decode() for each in values(rows)]


@pytest.fixture
def producer(java: Client, unused_name: Any) -> Iterator[Transactional]:
    made = java.transactional(unused_name())
    yield made
    made.close()


@pytest.fixture
def mixed(producer: Transactional, new_topic: NewTopic) -> str:
    """Committed, aborted, committed, aborted: 3 records each, a marker after each three."""
    topic = new_topic()
    for number, end in enumerate((producer.commit, producer.abort) * 2):
        producer.begin()
        send(producer, topic, f"transaction {number}", 3)
        end()
    return topic


COMMITTED_WORDS = [f"transaction {number} {n}" for number in (0, 2) for n in range(3)]


@pytest.mark.case(AREA, "batch: read_committed without aborted records, read_uncommitted (default) with them")
def test_isolation(spark: Spark, mixed: str) -> None:
    assert words(spark.read(subscribe=mixed, **COMMITTED)) == COMMITTED_WORDS
    assert len(spark.read(subscribe=mixed)) == 12
    assert len(spark.read(subscribe=mixed, **{"kafka.isolation.level": "read_uncommitted"})) == 12


@pytest.mark.case(AREA, "batch: read_committed ends where a transaction is open")
def test_open(spark: Spark, producer: Transactional, java: Client, mixed: str) -> None:
    producer.begin()
    send(producer, mixed, "open", 2)
    java.produce(mixed, [Message(b"after", timestamp_ms=FIRST_MS)])
    assert words(spark.read(subscribe=mixed, **COMMITTED)) == COMMITTED_WORDS
    assert len(spark.read(subscribe=mixed)) == 15
    producer.commit()
    found = words(spark.read(subscribe=mixed, **COMMITTED))
    assert found == [*COMMITTED_WORDS, "open 0", "open 1", "after"]


@pytest.mark.case(AREA, "stream: read_committed waits for an open transaction, then takes it whole")
def test_stream_open(spark: Spark, producer: Transactional, mixed: str) -> None:
    how: dict[str, Any] = {"subscribe": mixed, **COMMITTED, **EARLIEST}
    taken = spark.stream(**how)
    assert (words(taken.rows), taken.batches[-1]["end"]) == (COMMITTED_WORDS, {mixed: {"0": 16}})
    producer.begin()
    send(producer, mixed, "open", 2)
    assert spark.stream(**how).count == 0
    producer.commit()
    assert words(spark.stream(**how).rows) == [*COMMITTED_WORDS, "open 0", "open 1"]


@pytest.mark.case(AREA, "stream: maxOffsetsPerTrigger counts aborted records and markers as offsets")
def test_stream_in_batches(spark: Spark, mixed: str) -> None:
    taken = spark.stream(subscribe=mixed, maxOffsetsPerTrigger="3", **COMMITTED, **EARLIEST)
    assert words(taken.rows) == COMMITTED_WORDS
    assert taken.count == 6


@pytest.mark.case(AREA, "minPartitions splits between markers; a range of nothing but aborted records")
def test_split(spark: Spark, mixed: str) -> None:
    rows, tasks = spark.read_in_tasks(subscribe=mixed, minPartitions="8", **COMMITTED)
    assert (words(rows), tasks) == (COMMITTED_WORDS, 8)
    aborted = {"startingOffsets": {mixed: {"0": 4}}, "endingOffsets": {mixed: {"0": 8}}}
    assert spark.read(subscribe=mixed, **aborted, **COMMITTED) == []


@pytest.mark.case(AREA, "a topic that ends with a marker: no time-out at its end")
def test_marker_at_end(spark: Spark, producer: Transactional, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer.begin()
    send(producer, topic, "only", 2)
    producer.commit()
    how: dict[str, Any] = {"subscribe": topic, "kafkaConsumer.pollTimeoutMs": "60000"}
    assert words(spark.read(**how)) == ["only 0", "only 1"]
    assert spark.read(startingOffsets={topic: {"0": 2}}, **how) == [], "the marker alone"
