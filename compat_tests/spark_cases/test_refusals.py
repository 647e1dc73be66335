"""Options that Spark refuses, before any broker is asked: the same words whichever it is pointed at."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.spark_cases.face import Spark, text

AREA = "Spark: refused options"
ILLEGAL = "IllegalArgumentException"
ROW = {"key": text(b"k"), "value": text(b"v")}


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "kafka.{name} is refused by the source")
@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_source_settings(spark: Spark, topic: str, name: str) -> None:
    for how in (spark.read, spark.stream):
        failure = spark.fails(how, subscribe=topic, **{f"kafka.{name}": "x"})
        failure.says(ILLEGAL, f"'{name}' is not supported")


@pytest.mark.case(AREA, "kafka.{name} is refused by the sink")
@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_sink_settings(spark: Spark, topic: str, name: str) -> None:
    failure = spark.fails(spark.write, [ROW], "key", "value", topic=topic, **{f"kafka.{name}": "x"})
    failure.says(ILLEGAL, f"'{name}' is not supported")


@pytest.mark.case(AREA, "no topics, two ways to name them, none in the list, no pattern")
def test_which_topics(spark: Spark, topic: str) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "One of the following options must be specified"),
        ({"subscribe": topic, "subscribePattern": ".*"}, "Only one of the following options"),
        ({"subscribe": " , "}, "No topics to subscribe"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"assign": topic}, "No topicpartitions to assign"),
    ]
    for options, words in refused:
        spark.fails(spark.read, **options).says(ILLEGAL, words)


@pytest.mark.case(AREA, "minPartitions below 1, numbers that are none")
def test_numbers(spark: Spark, topic: str) -> None:
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"minPartitions": "0"}, ILLEGAL, "minPartitions must be positive"),
        ({"minPartitions": "many"}, "NumberFormatException", "many"),
        ({"startingTimestamp": "yesterday"}, "", "yesterday"),
    ]
    for options, kind, words in refused:
        spark.fails(spark.read, subscribe=topic, **options).says(kind, words)


@pytest.mark.spark("newest")
@pytest.mark.case(AREA, "maxRecordsPerPartition below 1")
def test_max_records(spark: Spark, topic: str) -> None:
    failure = spark.fails(spark.read, subscribe=topic, maxRecordsPerPartition="0")
    failure.says(ILLEGAL, "must be positive")


@pytest.mark.case(AREA, "a broker that is not there: the client's own time-out")
def test_nobody(spark: Spark, topic: str) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1500"}
    nowhere |= {"kafka.request.timeout.ms": "1000", "fetchOffset.numRetries": "1"}
    spark.fails(spark.read, subscribe=topic, **nowhere).says("TimeoutException", "")
