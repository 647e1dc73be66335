"""In how many tasks a read is done, and by which consumers."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.clients.face import Client
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.conftest import FIRST_MS
from compat_tests.spark_cases.face import Spark, places, values

AREA = "Spark source: tasks and consumers"


@pytest.fixture
def uneven(new_topic: NewTopic, raw: RawConnection) -> str:
    """3000 records in partition 0, in compressed batches of 500; ten in partition 1."""
    topic = new_topic(partitions=2)
    for n in range(0, 3000, 500):
        values_there = [b"%d" % each for each in range(n, n + 500)]
        raw.produce(topic, batch(values_there, codec=1, timestamp_ms=FIRST_MS + n))
    raw.produce(topic, batch([b"few"] * 10, timestamp_ms=FIRST_MS), partition=1)
    return topic


@pytest.mark.spark("three")
@pytest.mark.case(AREA, "minPartitions: several tasks within one partition, each record once")
def test_min_partitions(spark: Spark, uneven: str) -> None:
    rows, tasks = spark.read_in_tasks(assign={uneven: [0]}, minPartitions="4")
    assert tasks == 4
    assert values(rows) == [b"%d" % n for n in range(3000)]
    rows, tasks = spark.read_in_tasks(subscribe=uneven, minPartitions="5")
    assert (len(rows), tasks) == (3010, 5), "in proportion, at least one a partition"
    rows, tasks = spark.read_in_tasks(subscribe=uneven, minPartitions="1")
    assert (len(rows), tasks) == (3010, 2), "never fewer than partitions"


@pytest.mark.case(AREA, "maxRecordsPerPartition: tasks of at most as many records; with minPartitions")
def test_max_records(spark: Spark, uneven: str) -> None:
    how: dict[str, Any] = {"subscribe": uneven, "maxRecordsPerPartition": "700"}
    assert spark.read_in_tasks(**how)[1] == 2, "Spark takes latest - earliest for one record"
    how |= {"startingOffsets": {uneven: {"0": 0, "1": 0}}, "endingOffsets": {uneven: {"0": 3000, "1": 10}}}
    rows, tasks = spark.read_in_tasks(**how)
    assert (len(rows), tasks) == (3010, 6)
    assert values(rows)[:3000] == [b"%d" % n for n in range(3000)]
    rows, tasks = spark.read_in_tasks(**how, minPartitions="12")
    assert len(rows) == 3010
    assert tasks >= 12


@pytest.mark.case(AREA, "minPartitions and maxRecordsPerPartition in a stream")
def test_stream_in_tasks(spark: Spark, uneven: str) -> None:
    how: dict[str, Any] = {
        "startingOffsets": "earliest",
        "minPartitions": "4",
        "maxRecordsPerPartition": "600",
    }
    taken = spark.stream(subscribe=uneven, **how)
    assert (len(taken.rows), taken.count) == (3010, 3010)


@pytest.mark.case(AREA, "groupIdPrefix, kafka.group.id: no group is left behind, nothing is committed")
def test_groups(spark: Spark, java: Client, topic: str, unused_name: Any) -> None:
    prefix, group = unused_name(), unused_name()
    assert len(spark.read(subscribe=topic, groupIdPrefix=prefix)) == 20
    assert len(spark.read(subscribe=topic, kafka__group__id=group)) == 20
    assert spark.stream(subscribe=topic, startingOffsets="earliest", kafka__group__id=group).count == 20
    assert [each for each in java.groups() if each.startswith(prefix) or each == group] == []
    assert java.committed(group, topic, 0) is None


@pytest.mark.case(AREA, "kafka.group.id of a live group: neither gets into the other's way")
def test_group_in_use(spark: Spark, java: Client, topic: str, unused_name: Any) -> None:
    group = unused_name()
    member = java.join([topic], group)
    try:
        assert len(member.poll(20, 20.0)) == 20
        assert len(spark.read(subscribe=topic, kafka__group__id=group)) == 20
        assert spark.stream(subscribe=topic, startingOffsets="earliest", kafka__group__id=group).count == 20
        member.commit()
        assert member.assignment() == {(topic, 0), (topic, 1)}
    finally:
        member.close()
    assert java.committed(group, topic, 0) == 10


@pytest.mark.case(AREA, "kafkaConsumer.pollTimeoutMs: 0 is too short for any broker")
def test_poll_timeout(spark: Spark, topic: str) -> None:
    assert len(spark.read(subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": "20000"})) == 20
    failure = spark.fails(spark.read, subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": "0"})
    failure.says("TimeoutException", "in 0 milliseconds")


@pytest.mark.case(
    AREA, "kafka.max.poll.records, max.partition.fetch.bytes, fetch.max.bytes, receive.buffer.bytes"
)
def test_fetch_sizes(spark: Spark, uneven: str) -> None:
    small = {"max.partition.fetch.bytes": "2000", "fetch.max.bytes": "3000", "receive.buffer.bytes": "4096"}
    options = {f"kafka.{name}": value for name, value in small.items()} | {"kafka.max.poll.records": "37"}
    rows = spark.read(subscribe=uneven, **options)
    assert places(rows) == [(0, n) for n in range(3000)] + [(1, n) for n in range(10)]


@pytest.mark.case(AREA, "a record larger than a fetch: 700 KB, with max.partition.fetch.bytes 1000")
def test_large_record(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"x" * 700_000], timestamp_ms=FIRST_MS))
    raw.produce(topic, batch([b"after"], timestamp_ms=FIRST_MS))
    rows = spark.read(subscribe=topic, **{"kafka.max.partition.fetch.bytes": "1000"})
    assert [len(each) for each in values(rows)] == [700_000, 5]
