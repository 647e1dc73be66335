"""Which records: topics, patterns, partitions; from where to where, by offset and by time. Batch reads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.clients.face import CODECS, Client, Message
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.conftest import FIRST_MS, MINUTE_MS, STARTED_MS
from compat_tests.spark_cases.face import CREATE_TIME, LOG_APPEND_TIME, Spark, places, text, values
from compat_tests.spark_driver import SPARK_VERSION

AREA = "Spark source: which records"
LATE_MS = STARTED_MS + MINUTE_MS
"""No record is as late."""
QUICK: dict[str, Any] = {"fetchOffset.retryIntervalMs": "10"}
"""Spark asks for offsets three times, also where it is told why there are none."""


@pytest.mark.spark("both", "three")
@pytest.mark.case(AREA, "subscribe: every column")
def test_subscribe(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    stamp = FIRST_MS + 7
    java.produce(
        topic,
        [Message(b"value", key=b"key", timestamp_ms=stamp), Message(None, key=b"gone", timestamp_ms=stamp)],
    )
    first, second = spark.read(subscribe=topic)[:2]
    assert first == {
        "key": text(b"key"),
        "value": text(b"value"),
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": stamp,
        "timestampType": CREATE_TIME,
    }
    assert (second["key"], second["value"], second["offset"]) == (text(b"gone"), None, 1)


@pytest.mark.case(AREA, "subscribe: two topics, one of them empty; blanks in the list")
def test_subscribe_two(spark: Spark, topic: str, new_topic: NewTopic) -> None:
    rows = spark.read(subscribe=f" {topic} , {new_topic(partitions=3)}")
    assert places(rows) == [(partition, n) for partition in range(2) for n in range(10)]


@pytest.mark.case(AREA, "subscribePattern: two topics and not a third, no internal topic")
def test_subscribe_pattern(spark: Spark, raw: RawConnection, java: Client, unused_name: Any) -> None:
    prefix = unused_name()
    for name in (f"{prefix}-a", f"{prefix}-b", f"other-{prefix}"):
        raw.create_topic(name)
        raw.produce(name, batch([name[-1].encode()], timestamp_ms=FIRST_MS))
    java.set_offset(prefix, f"{prefix}-a", 0, 1)  # now __consumer_offsets has a record
    rows = spark.read(subscribePattern=f"{prefix}-.*|__consumer_offsets")
    assert values(rows) == [b"a", b"b"]


@pytest.mark.case(AREA, "subscribePattern that no topic matches: nothing")
def test_subscribe_pattern_none(spark: Spark, unused_name: Any) -> None:
    assert spark.read(subscribePattern=f"{unused_name()}-.*") == []


@pytest.mark.case(AREA, "assign: some partitions of two topics")
def test_assign(spark: Spark, topic: str, new_topic: NewTopic, raw: RawConnection) -> None:
    other = new_topic(partitions=3)
    raw.produce(other, batch([b"other"], timestamp_ms=FIRST_MS), partition=2)
    rows = spark.read(assign={topic: [1], other: [0, 2]})
    assert places(rows) == [(1, n) for n in range(10)] + [(2, 0)]


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "startingOffsets and endingOffsets by partition, -2 and -1 among them")
def test_offsets(spark: Spark, topic: str) -> None:
    start, end = {topic: {"0": 4, "1": -2}}, {topic: {"0": -1, "1": 3}}
    rows = spark.read(subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert places(rows) == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(3)]


@pytest.mark.case(AREA, "startingOffsets earliest, endingOffsets latest; an empty range")
def test_offset_words(spark: Spark, topic: str) -> None:
    assert len(spark.read(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")) == 20
    nothing = {topic: {"0": 10, "1": 5}}
    assert spark.read(subscribe=topic, startingOffsets=nothing, endingOffsets=nothing) == []


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "startingTimestamp and endingTimestamp")
def test_timestamps(spark: Spark, topic: str) -> None:
    start, end = str(FIRST_MS + 3 * MINUTE_MS), str(FIRST_MS + 6 * MINUTE_MS - 1)
    rows = spark.read(subscribe=topic, startingTimestamp=start, endingTimestamp=end)
    assert places(rows) == [(partition, n) for partition in range(2) for n in range(3, 6)]
    assert len(spark.read(subscribe=topic, endingTimestamp=str(LATE_MS))) == 20, (
        "the end, where none is as late"
    )


@pytest.mark.case(AREA, "startingOffsetsByTimestamp and endingOffsetsByTimestamp by partition")
def test_timestamps_by_partition(spark: Spark, topic: str) -> None:
    start = {topic: {"0": FIRST_MS + 8 * MINUTE_MS, "1": FIRST_MS}}
    end = {topic: {"0": LATE_MS, "1": FIRST_MS + 2 * MINUTE_MS}}
    rows = spark.read(subscribe=topic, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end)
    assert places(rows) == [(0, 8), (0, 9), (1, 0), (1, 1)]


@pytest.mark.case(AREA, "startingOffsetsByTimestampStrategy: latest begins at the end, error fails")
def test_no_timestamp(spark: Spark, topic: str) -> None:
    after = {topic: {"0": FIRST_MS + 8 * MINUTE_MS, "1": LATE_MS}}
    latest: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest"}
    rows = spark.read(subscribe=topic, startingOffsetsByTimestamp=after, **latest)
    assert places(rows) == [(0, 8), (0, 9)], "partition 1 has nothing as late"
    assert spark.read(subscribe=topic, startingTimestamp=str(LATE_MS), **latest) == []
    for how in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        failure = spark.fails(spark.read, subscribe=topic, startingTimestamp=str(LATE_MS), **how, **QUICK)
        failure.says("", "No offset matched from request")


@pytest.mark.case(AREA, "startingTimestamp before startingOffsetsByTimestamp before startingOffsets")
def test_precedence(spark: Spark, topic: str) -> None:
    by_offset: dict[str, Any] = {"startingOffsets": {topic: {"0": 1, "1": 1}}}
    after = {topic: {"0": FIRST_MS + 5 * MINUTE_MS, "1": FIRST_MS + 5 * MINUTE_MS}}
    by_partition = by_offset | {"startingOffsetsByTimestamp": after}
    all_three = by_partition | {"startingTimestamp": str(FIRST_MS + 8 * MINUTE_MS)}
    counts = [len(spark.read(subscribe=topic, **each)) for each in (by_offset, by_partition, all_three)]
    assert counts == [18, 10, 4]


@pytest.mark.case(AREA, "times within a compressed batch of 500")
def test_timestamp_within_batch(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"%d" % n for n in range(500)], codec=1, timestamp_ms=FIRST_MS))
    start, end = str(FIRST_MS + 123), str(FIRST_MS + 130)
    rows = spark.read(subscribe=topic, startingTimestamp=start, endingTimestamp=end)
    assert places(rows) == [(0, n) for n in range(123, 130)]


@pytest.mark.case(
    AREA, "offsets that do not fit: latest to begin with, earliest to end with, not all partitions"
)
def test_unfit_offsets(spark: Spark, topic: str) -> None:
    unfit: list[tuple[dict[str, Any], str, str]] = [
        ({"startingOffsets": "latest"}, "IllegalArgumentException", "starting offset can't be latest"),
        ({"startingOffsets": {topic: {"0": 0, "1": -1}}}, "IllegalArgumentException", "can't be latest"),
        ({"endingOffsets": "earliest"}, "IllegalArgumentException", "ending offset can't be earliest"),
        ({"endingOffsets": {topic: {"0": -2, "1": 5}}}, "IllegalArgumentException", "can't be earliest"),
        ({"startingOffsets": {topic: {"0": 0}}}, "", "don't match"),
        ({"startingOffsetsByTimestamp": {topic: {"0": FIRST_MS}}}, "", "don't match"),
        ({"startingOffsets": "{not json"}, "IllegalArgumentException", "Expected e.g."),
    ]
    for options, kind, words in unfit:
        spark.fails(spark.read, subscribe=topic, **options, **QUICK).says(kind, words)


@pytest.mark.case(AREA, "a start behind the end: of the request, of the partition")
def test_start_behind_end(spark: Spark, topic: str, spark_version: str) -> None:
    words = "greater than" if spark_version == SPARK_VERSION else "is after the ending offset"
    start, end = {topic: {"0": 5, "1": 0}}, {topic: {"0": 3, "1": 1}}
    spark.fails(spark.read, subscribe=topic, startingOffsets=start, endingOffsets=end).says("", words)
    beyond = {topic: {"0": 0, "1": 50}}
    spark.fails(spark.read, subscribe=topic, startingOffsets=beyond).says("", words)
    late, early = str(FIRST_MS + 5 * MINUTE_MS), str(FIRST_MS)
    by_time = {"startingTimestamp": late, "endingTimestamp": early}
    spark.fails(spark.read, subscribe=topic, **by_time).says("", words)


@pytest.mark.case(AREA, "includeHeaders")
def test_headers(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = (("h", b"1"), ("h", b"2"), ("n", None))
    java.produce(topic, [Message(b"a", headers=headers, timestamp_ms=1), Message(b"b", timestamp_ms=2)])
    rows = spark.read(subscribe=topic, includeHeaders=True)
    assert [each["headers"] for each in rows] == [[["h", text(b"1")], ["h", text(b"2")], ["n", None]], None]


@pytest.mark.case(AREA, "every codec; the broker's timestamps")
def test_codecs(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        java.produce(topic, [Message(codec.encode() * 50)] * 5, codec=codec)
    rows = spark.read(subscribe=topic)
    assert values(rows) == [codec.encode() * 50 for codec in CODECS for _ in range(5)]
    assert {each["timestampType"] for each in rows} == {LOG_APPEND_TIME}
    latest = int(time.time() * 1000) + MINUTE_MS
    assert all(STARTED_MS - MINUTE_MS < each["timestamp"] < latest for each in rows)


@pytest.mark.case(AREA, "fetchOffset.numRetries: an unknown topic fails with the broker's error")
def test_unknown(spark: Spark, unused_name: Any) -> None:
    how = {**QUICK, "fetchOffset.numRetries": "2"}
    failure = spark.fails(spark.read, subscribe=unused_name(), **how)
    failure.says("UnknownTopicOrPartitionException", "does not host this topic-partition")


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "spark.sql.streaming.kafka.useDeprecatedOffsetFetching: the same rows by a consumer")
def test_deprecated_fetching(spark: Spark, topic: str) -> None:
    spark.configure(spark__sql__streaming__kafka__useDeprecatedOffsetFetching="true")
    try:
        start, end = {topic: {"0": 4, "1": -2}}, {topic: {"0": -1, "1": 3}}
        rows = spark.read(subscribe=topic, startingOffsets=start, endingOffsets=end)
        assert places(rows) == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(3)]
        assert len(spark.read(subscribePattern=f"{topic}.*")) == 20
        assert len(spark.read(assign={topic: [1]}, startingTimestamp=str(FIRST_MS + 7 * MINUTE_MS))) == 3
    finally:
        spark.configure(spark__sql__streaming__kafka__useDeprecatedOffsetFetching=None)
