"""In which batches a stream takes its records: triggers, limits, checkpoints, new partitions, progress."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.clients.face import Client
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_cases.conftest import FIRST_MS, MINUTE_MS
from compat_tests.spark_cases.face import Spark, places, values
from compat_tests.until import until

AREA = "Spark source: streams"
EARLIEST: dict[str, Any] = {"startingOffsets": "earliest"}
OFTEN = {"processingTime": "200 milliseconds"}
BOTH = [(partition, n) for partition in range(2) for n in range(10)]


def more(raw: RawConnection, topic: str, count: int, partition: int = 0) -> None:
    values_there = [b"more %d" % n for n in range(count)]
    records = batch(values_there, timestamp_ms=FIRST_MS + 20 * MINUTE_MS)
    answer = raw.produce(topic, records, partition=partition)
    assert answer["error_code"] == 0, answer


@pytest.mark.case(AREA, "trigger availableNow from its checkpoint: a second run takes only what is new")
def test_available_now(spark: Spark, raw: RawConnection, topic: str) -> None:
    taken = spark.stream(subscribe=topic, **EARLIEST)
    assert (places(taken.rows), taken.count) == (BOTH, 20)
    more(raw, topic, 3, partition=1)
    taken = spark.stream(subscribe=topic, **EARLIEST)
    assert (taken.count, len(taken.rows)) == (3, 23), "each once"
    assert spark.stream(subscribe=topic, **EARLIEST).count == 0


@pytest.mark.case(AREA, "maxOffsetsPerTrigger with availableNow: batches in proportion to what is left")
def test_max_offsets(spark: Spark, raw: RawConnection, topic: str) -> None:
    taken = spark.stream(subscribe=topic, maxOffsetsPerTrigger="8", **EARLIEST)
    assert (taken.sizes, places(taken.rows)) == ([8, 8, 4], BOTH)
    more(raw, topic, 20)
    more(raw, topic, 5, partition=1)
    taken = spark.stream(subscribe=topic, maxOffsetsPerTrigger="10", **EARLIEST)
    assert taken.count == 25
    assert taken.batches[0]["end"] == {topic: {"0": 18, "1": 12}}, "four fifths of it from partition 0"


@pytest.mark.case(AREA, "trigger once: one batch, whatever maxOffsetsPerTrigger says")
def test_once(spark: Spark, raw: RawConnection, topic: str) -> None:
    taken = spark.stream(trigger={"once": True}, subscribe=topic, maxOffsetsPerTrigger="8", **EARLIEST)
    assert taken.sizes == [8] or taken.sizes == [20]
    more(raw, topic, 2)
    again = spark.stream(trigger={"once": True}, subscribe=topic, **EARLIEST)
    assert len(again.sizes) == 1
    assert taken.count + again.count == 22


@pytest.mark.case(AREA, "trigger processingTime: takes what is written while it runs, stops, goes on")
def test_processing_time(spark: Spark, raw: RawConnection, topic: str) -> None:
    how: dict[str, Any] = {"subscribe": topic, "trigger": OFTEN, "kept": False, **EARLIEST}
    with spark.open(**how) as query:
        query.took(20)
        more(raw, topic, 3)
        query.took(23)
    more(raw, topic, 2, partition=1)
    with spark.open(**how) as query:
        query.took(2)
    rows = query.taken().rows
    assert places(rows) == [(0, n) for n in range(13)] + [(1, n) for n in range(12)]
    spark.note("rows", rows)


@pytest.mark.case(AREA, "startingOffsets latest, the default: only what comes after the start")
def test_latest(spark: Spark, raw: RawConnection, topic: str) -> None:
    assert spark.stream(subscribe=topic).rows == []
    more(raw, topic, 3)
    taken = spark.stream(subscribe=topic, **EARLIEST)
    assert places(taken.rows) == [(0, n) for n in range(10, 13)], "the checkpoint counts, not the option"


@pytest.mark.case(AREA, "startingOffsets json, startingTimestamp, startingOffsetsByTimestamp in a stream")
def test_starts(spark: Spark, topic: str) -> None:
    starts: dict[str, dict[str, Any]] = {
        "json": {"startingOffsets": {topic: {"0": 7, "1": -2}}},
        "latest": {"startingOffsets": {topic: {"0": -1, "1": 8}}},
        "timestamp": {"startingTimestamp": str(FIRST_MS + 4 * MINUTE_MS)},
        "by partition": {
            "startingOffsetsByTimestamp": {
                topic: {"0": FIRST_MS + 9 * MINUTE_MS, "1": FIRST_MS + 99 * MINUTE_MS}
            },
            "startingOffsetsByTimestampStrategy": "latest",
        },
    }
    counts = [spark.stream(name=name, subscribe=topic, **options).count for name, options in starts.items()]
    assert counts == [13, 2, 12, 1]


@pytest.mark.case(AREA, "endingTimestamp is ignored in a stream, endingOffsets refused")
def test_ends(spark: Spark, topic: str) -> None:
    early = str(FIRST_MS + MINUTE_MS)
    assert spark.stream(subscribe=topic, endingTimestamp=early, **EARLIEST).count == 20
    refused: list[tuple[dict[str, Any], str]] = [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": {topic: {"0": 1, "1": 1}}}, "ending timestamp not valid in streaming"),
    ]
    for options, words in refused:
        failure = spark.fails(spark.stream, name="refused", subscribe=topic, **options)
        failure.says("IllegalArgumentException", words)


@pytest.mark.case(AREA, "minOffsetsPerTrigger waits for enough records, maxTriggerDelay ends the wait")
def test_min_offsets(spark: Spark, raw: RawConnection, topic: str) -> None:
    how: dict[str, Any] = {"trigger": OFTEN, "minOffsetsPerTrigger": "10", "kept": False}
    how |= {"subscribe": topic, "startingOffsets": "latest", "maxTriggerDelay": "10m"}
    with spark.open(name="waits", **how) as query:
        more(raw, topic, 12)
        query.took(12)
        for _ in range(4):
            more(raw, topic, 3)
        query.took(24)
    waited = [each["rows"] for each in query.batches]
    assert waited[-1] >= 10 and sum(waited) == 24, "3 at a time would have been four batches"
    with spark.open(name="delayed", **(how | {"maxTriggerDelay": "1s"})) as query:
        more(raw, topic, 2)
        query.took(2)
        more(raw, topic, 2, partition=1)
        query.took(4)


@pytest.mark.case(
    AREA, "minOffsetsPerTrigger above maxOffsetsPerTrigger is refused; both together with availableNow"
)
def test_min_and_max(spark: Spark, topic: str) -> None:
    both: dict[str, Any] = {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    failure = spark.fails(spark.stream, name="refused", subscribe=topic, **both)
    failure.says("IllegalArgumentException", "higher than the maxOffsetsPerTrigger(8)")
    both = {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "15", "maxTriggerDelay": "1s"}
    taken = spark.stream(subscribe=topic, **both, **EARLIEST)
    assert (taken.count, max(taken.sizes)) == (20, 14)


@pytest.mark.case(AREA, "partitions are added while it runs: read from their beginning")
def test_new_partitions(spark: Spark, java: Client, raw: RawConnection, topic: str) -> None:
    how: dict[str, Any] = {"kafka.metadata.max.age.ms": "500"}
    with spark.open(subscribe=topic, trigger=OFTEN, kept=False, **how) as query:
        more(raw, topic, 1)
        query.took(1)
        java.add_partitions(topic, 4)
        until(0, lambda: raw.list_offset(topic, -1, partition=3)["error_code"])
        more(raw, topic, 5, partition=3)
        query.took(6)
    assert places(query.taken().rows) == [(0, 10)] + [(3, n) for n in range(5)]


@pytest.mark.case(AREA, "subscribePattern: a topic that is made while it runs")
def test_new_topic(spark: Spark, raw: RawConnection, unused_name: Any) -> None:
    prefix = unused_name()
    raw.create_topic(f"{prefix}-a")
    with spark.open(subscribePattern=f"{prefix}-.*", trigger=OFTEN, kept=False, **EARLIEST) as query:
        more(raw, f"{prefix}-a", 2)
        query.took(2)
        raw.create_topic(f"{prefix}-b")
        more(raw, f"{prefix}-b", 3)
        query.took(5)
    rows = query.taken().rows
    assert [(each["topic"][-1], each["offset"]) for each in rows] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
        ("b", 2),
    ]


@pytest.mark.case(AREA, "progress: latestOffset and min, max, avgOffsetsBehindLatest")
def test_progress(spark: Spark, raw: RawConnection, topic: str) -> None:
    more(raw, topic, 10)
    taken = spark.stream(subscribe=topic, maxOffsetsPerTrigger="15", **EARLIEST)
    first, second = taken.batches
    assert first["latest"] == second["latest"] == second["end"] == {topic: {"0": 20, "1": 10}}
    assert first["end"] == second["start"] == {topic: {"0": 10, "1": 5}}
    assert {name: float(value) for name, value in first["metrics"].items()} == {
        "minOffsetsBehindLatest": 5.0,
        "maxOffsetsBehindLatest": 10.0,
        "avgOffsetsBehindLatest": 7.5,
    }
    assert {float(value) for value in second["metrics"].values()} == {0.0}


@pytest.mark.case(AREA, "includeHeaders in a stream; assign")
def test_headers(spark: Spark, topic: str) -> None:
    taken = spark.stream(assign={topic: [1]}, includeHeaders=True, **EARLIEST)
    assert [each["headers"] for each in taken.rows] == [None] * 10
    assert values(taken.rows) == [b"1/%d" % n for n in range(10)]


@pytest.mark.case(AREA, "spark.sql.streaming.kafka.useDeprecatedOffsetFetching in a stream")
def test_deprecated_fetching(spark: Spark, raw: RawConnection, topic: str) -> None:
    spark.configure(spark__sql__streaming__kafka__useDeprecatedOffsetFetching="true")
    try:
        taken = spark.stream(subscribePattern=f"{topic}.*", maxOffsetsPerTrigger="12", **EARLIEST)
        assert (taken.sizes, places(taken.rows)) == ([12, 8], BOTH)
        more(raw, topic, 3)
    finally:
        spark.configure(spark__sql__streaming__kafka__useDeprecatedOffsetFetching=None)
    assert spark.stream(subscribePattern=f"{topic}.*", **EARLIEST).count == 3, "one checkpoint for both"
