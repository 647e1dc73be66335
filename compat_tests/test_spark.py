"""Spark's stock Kafka source and sink, unchanged: batch and stream, reading and writing, in one session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clients.face import CODECS, Client, Message
from compat_tests.clients.java import Java
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.line_driver import DriverFailed
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_face import Spark, as_text, values_of, where_of
from compat_tests.targets import Target

_MINUTE_MS = 60_000
_CREATE_TIME, _LOG_APPEND_TIME = 0, 1
_LOCKSTEP = [pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets() if each != "kafka"]
"""For what Apache Kafka has not."""


@pytest.fixture
def spark(world: World, target: Target, tmp_path: Path) -> Spark:
    return Spark(world, target, tmp_path)


@pytest.fixture
def java(world: World, target: Target) -> Client:
    """Writes and reads what Spark reads and wrote."""
    return world.client(Java.name, target.name)


@pytest.fixture
def topic(new_topic: NewTopic, raw: RawConnection) -> str:
    """Two partitions of ten records, a minute apart: the first an hour ago."""
    name = new_topic(partitions=2)
    for partition in range(2):
        for n in range(10):
            value = b"%d/%d" % (partition, n)
            raw.produce(name, batch([value], timestamp_ms=_first() + n * _MINUTE_MS), partition=partition)
    return name


_started = int(time.time() * 1000)


def _first() -> int:
    return _started - 60 * _MINUTE_MS


# -- batch reads --------------------------------------------------------------------------------------------


@pytest.mark.case("Spark", "batch read, subscribe: every column")
def test_subscribe(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    stamp = _first() + 7
    java.produce(topic, [Message(b"value", key=b"key", timestamp_ms=stamp), Message(None, key=b"gone")])
    first, second = spark.read(subscribe=topic)
    assert first == {
        "key": as_text(b"key"),
        "value": as_text(b"value"),
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": stamp,
        "timestampType": _CREATE_TIME,
    }
    assert (second["key"], second["value"], second["offset"]) == (as_text(b"gone"), None, 1)


@pytest.mark.case("Spark", "batch read, subscribePattern: two topics and not a third")
def test_subscribe_pattern(spark: Spark, raw: RawConnection, unused_name: Any) -> None:
    prefix = unused_name()
    for name in (f"{prefix}-a", f"{prefix}-b", f"other-{prefix}"):
        raw.create_topic(name)
        raw.produce(name, batch([name.encode()]))
    rows = spark.read(subscribePattern=f"{prefix}-.*")
    assert values_of(rows) == [f"{prefix}-a".encode(), f"{prefix}-b".encode()]


@pytest.mark.case("Spark", "batch read, assign: one partition")
def test_assign(spark: Spark, topic: str) -> None:
    assert where_of(spark.read(assign={topic: [1]})) == [(1, n) for n in range(10)]


@pytest.mark.case("Spark", "batch read, startingOffsets and endingOffsets by partition")
def test_offsets(spark: Spark, topic: str) -> None:
    start, end = {topic: {"0": 4, "1": -2}}, {topic: {"0": -1, "1": 3}}
    rows = spark.read(subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert where_of(rows) == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(3)]


@pytest.mark.case("Spark", "batch read, startingTimestamp and endingTimestamp, by partition too")
def test_timestamps(spark: Spark, topic: str) -> None:
    start, end = str(_first() + 3 * _MINUTE_MS), str(_first() + 6 * _MINUTE_MS)
    rows = spark.read(subscribe=topic, startingTimestamp=start, endingTimestamp=end)
    assert where_of(rows) == [(partition, n) for partition in range(2) for n in range(3, 6)]
    after = {topic: {"0": _first() + 8 * _MINUTE_MS, "1": _started + _MINUTE_MS}}
    how = {"startingOffsetsByTimestamp": after, "startingOffsetsByTimestampStrategy": "latest"}
    assert where_of(spark.read(subscribe=topic, **how)) == [(0, 8), (0, 9)], "partition 1 has nothing as late"


@pytest.mark.case("Spark", "batch read, includeHeaders")
def test_headers(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    java.produce(topic, [Message(b"a", headers=(("h", b"1"), ("h", b"2"), ("n", None))), Message(b"b")])
    rows = spark.read(subscribe=topic, includeHeaders=True)
    assert [each["headers"] for each in rows] == [
        [["h", as_text(b"1")], ["h", as_text(b"2")], ["n", None]],
        None,
    ]


@pytest.mark.case("Spark", "batch read, every codec; the broker's timestamps")
def test_codecs(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        java.produce(topic, [Message(codec.encode() * 50)] * 5, codec=codec)
    rows = spark.read(subscribe=topic)
    assert values_of(rows) == [codec.encode() * 50 for codec in CODECS for _ in range(5)]
    assert {each["timestampType"] for each in rows} == {_LOG_APPEND_TIME}
    assert all(_started - _MINUTE_MS < each["timestamp"] < _started + 60 * _MINUTE_MS for each in rows)


@pytest.mark.case("Spark", "batch read, minPartitions: several tasks within one partition, 3000 records")
def test_min_partitions(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    for n in range(0, 3000, 500):
        raw.produce(topic, batch([b"%d" % each for each in range(n, n + 500)], codec=1))
    rows, tasks = spark.read_in_tasks(subscribe=topic, minPartitions="4")
    assert tasks == 4
    assert values_of(rows) == [b"%d" % n for n in range(3000)]


@pytest.mark.case("Spark", "batch read of an unknown topic fails with the broker's error")
def test_unknown(spark: Spark, unused_name: Any) -> None:
    with pytest.raises(DriverFailed, match="UnknownTopicOrPartition"):
        spark.read(subscribe=unused_name(), fetchOffset__retryIntervalMs="10")


@pytest.mark.case("Spark", "batch read after records were deleted: from the new beginning")
def test_deleted(spark: Spark, java: Client, topic: str) -> None:
    java.delete_records(topic, 0, 6)
    rows = spark.read(assign={topic: [0]})
    assert where_of(rows) == [(0, n) for n in range(6, 10)]


# -- streams ------------------------------------------------------------------------------------------------


@pytest.mark.case("Spark", "stream (AvailableNow) from its checkpoint: a second run takes only what is new")
def test_stream(spark: Spark, raw: RawConnection, topic: str) -> None:
    rows, taken, _ = spark.stream(subscribe=topic, startingOffsets="earliest")
    assert (len(rows), taken) == (20, 20)
    raw.produce(topic, batch([b"new"] * 3), partition=1)
    rows, taken, _ = spark.stream(subscribe=topic, startingOffsets="earliest")
    assert taken == 3
    assert where_of(rows) == [(0, n) for n in range(10)] + [(1, n) for n in range(13)], "each once"
    _, taken, _ = spark.stream(subscribe=topic, startingOffsets="earliest")
    assert taken == 0


@pytest.mark.case("Spark", "stream with maxOffsetsPerTrigger: several batches, each record once")
def test_stream_in_batches(spark: Spark, topic: str) -> None:
    how = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    rows, taken, batches = spark.stream(subscribe=topic, **how)
    assert (taken, batches) == (20, 3)
    assert where_of(rows) == [(partition, n) for partition in range(2) for n in range(10)]


# -- writes -------------------------------------------------------------------------------------------------


@pytest.mark.case("Spark", "batch write: keys, values, nulls, headers, partition, compressed")
def test_write(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    rows: list[dict[str, Any]] = [
        {
            "key": as_text(b"k"),
            "value": as_text(b"v"),
            "headers": [["h", as_text(b"1")], ["n", None]],
            "partition": 1,
        },
        {"key": as_text(b"gone"), "value": None, "partition": 1},
        {"key": None, "value": as_text(b"no key"), "partition": 0},
    ]
    how = {"topic": topic, "includeHeaders": True, "kafka__compression__type": "zstd"}
    spark.write(rows, "key", "value", "headers", "partition", **how)
    found = java.read(topic, 3, partitions=(0, 1))
    assert sorted((each.partition, each.content()) for each in found if each.partition == 0) == [
        (0, (None, b"no key", ()))
    ]
    assert {each.content() for each in found if each.partition == 1} == {
        (b"k", b"v", (("h", b"1"), ("n", None))),
        (b"gone", None, ()),
    }


@pytest.mark.case("Spark", "batch write to the topics of a column, 2000 rows")
def test_write_topics(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topics = [new_topic(), new_topic(partitions=3)]
    rows = [{"topic": topics[n % 2], "value": as_text(b"%d" % n)} for n in range(2000)]
    spark.write(rows, "topic", "value")
    found = values_of(spark.read(subscribe=",".join(topics)))
    assert sorted(found) == sorted(b"%d" % n for n in range(2000))
    assert raw.list_offset(topics[0], -1)["offset"] == 1000


@pytest.mark.case("Spark", "stream from a topic into another, twice from one checkpoint")
def test_copy(spark: Spark, java: Client, raw: RawConnection, topic: str, new_topic: NewTopic) -> None:
    sink = new_topic()
    java.produce(topic, [Message(b"last", key=b"k", headers=(("h", b"1"),))])
    assert spark.copy(topic, sink, startingOffsets="earliest") == 21
    raw.produce(topic, batch([b"new"]))
    assert spark.copy(topic, sink, startingOffsets="earliest") == 1
    found = java.read(sink, 22)
    written = [b"%d/%d" % (partition, n) for partition in range(2) for n in range(10)]
    assert sorted(each.value or b"" for each in found) == sorted([*written, b"last", b"new"])
    assert (b"k", b"last", (("h", b"1"),)) in [each.content() for each in found]


@pytest.mark.case("Spark", "batch write with lock headers: the same rows a second time fail the job")
@pytest.mark.parametrize("target", _LOCKSTEP, indirect=True)
def test_write_locked(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"lockstep.locks": "true"})

    def row(value: bytes, **asked: bytes) -> dict[str, Any]:
        headers = [[f"lockstep-{name.replace('_', '-')}", as_text(each)] for name, each in asked.items()]
        return {"value": as_text(value), "headers": headers, "partition": 0}

    how = {"topic": topic, "includeHeaders": True}
    rows = [row(b"%d" % n, hwm=b"-1", write_lock=b"seat/%d" % n) for n in range(3)]
    spark.write(rows, "value", "headers", "partition", **how)
    with pytest.raises(DriverFailed, match="LOCKSTEP_REFUSED reason=LOCK"):
        spark.write(rows, "value", "headers", "partition", **how)
    assert sorted(values_of(spark.read(subscribe=topic))) == [b"0", b"1", b"2"], "and nothing of it is there"
    caught_up = [row(b"again", hwm=b"2", write_lock=b"seat/1")]
    spark.write(caught_up, "value", "headers", "partition", **how)
    assert raw.list_offset(topic, -1)["offset"] == 4
