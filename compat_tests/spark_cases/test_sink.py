"""What the sink writes: columns, topics, partitions, nulls, what it refuses and what the broker refuses."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clients.face import CODECS, Client, Message
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch, values_in
from compat_tests.spark_cases.face import Spark, text, values

AREA = "Spark sink"
LOCKSTEP = [pytest.param(each, id=f"on-{each}") for each in harness.wanted_targets() if each != "kafka"]
"""For what Apache Kafka has not."""
EARLIEST: dict[str, Any] = {"startingOffsets": "earliest"}
ROW = {"key": text(b"k"), "value": text(b"v")}


def stored(raw: RawConnection, topic: str, partition: int) -> list[bytes]:
    """The values of a partition."""
    found: list[bytes] = []
    end = raw.list_offset(topic, -1, partition=partition)["offset"]
    while len(found) < end:
        records = raw.fetch(topic, len(found), partition=partition)["records"]
        found += [value or b"" for offset, value in values_in(records) if offset >= len(found)]
    return found


@pytest.mark.spark("both", "three")
@pytest.mark.case(AREA, "key, value, headers, partition; nulls; compressed")
def test_columns(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    rows: list[dict[str, Any]] = [
        ROW | {"headers": [["h", text(b"1")], ["n", None]], "partition": 1},
        {"key": text(b"gone"), "value": None, "partition": 1},
        {"key": None, "value": text(b"no key"), "partition": 0},
    ]
    how: dict[str, Any] = {"topic": topic, "includeHeaders": True, "kafka__compression__type": "zstd"}
    spark.write(rows, "key", "value", "headers", "partition", **how)
    found = java.read(topic, 3, partitions=(0, 1))
    assert {(each.partition, *each.content()) for each in found} == {
        (1, b"k", b"v", (("h", b"1"), ("n", None))),
        (1, b"gone", None, ()),
        (0, None, b"no key", ()),
    }


@pytest.mark.case(AREA, "topic column, 2000 rows into two topics")
def test_topic_column(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topics = [new_topic(), new_topic(partitions=3)]
    rows = [{"topic": topics[n % 2], "value": text(b"%d" % n)} for n in range(2000)]
    spark.write(rows, "topic", "value")
    ends = [raw.list_offset(topics[1], -1, partition=n)["offset"] for n in range(3)]
    assert (raw.list_offset(topics[0], -1)["offset"], sum(ends)) == (1000, 1000)
    written = stored(raw, topics[0], 0)
    for n in range(3):
        written += stored(raw, topics[1], n)
    assert sorted(written) == sorted(b"%d" % n for n in range(2000))


@pytest.mark.case(AREA, "topic option before the topic column")
def test_topic_option(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    column, option = new_topic(), new_topic()
    spark.write([ROW | {"topic": column}], "topic", "key", "value", topic=option)
    assert [raw.list_offset(each, -1)["offset"] for each in (column, option)] == [0, 1]


@pytest.mark.case(AREA, "text for keys and values; each key goes where Kafka's partitioner says")
def test_text(spark: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    rows = [{"key": text(b"key %d" % n), "value": text(b"%d" % n)} for n in range(40)]
    spark.write(rows, "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", topic=topic)
    found = java.read(topic, 40, partitions=range(4))
    spark.note("partition of each key", sorted(f"{each.key!r} {each.partition}" for each in found))
    assert {each.key: each.value for each in found} == {b"key %d" % n: b"%d" % n for n in range(40)}
    spark.write([{"value": text(b"alone")}] * 5, "value", topic=new_topic(partitions=4))


@pytest.mark.case(AREA, "every codec, acks 0, 1 and all, without idempotence")
def test_producers(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    for codec in CODECS:
        spark.write([ROW] * 3, "key", "value", topic=topic, **{"kafka.compression.type": codec})
    for acks in ("1", "all"):
        how = {"kafka.acks": acks, "kafka.enable.idempotence": "false"}
        spark.write([ROW] * 2, "key", "value", topic=topic, **how)
    assert raw.list_offset(topic, -1)["offset"] == 3 * len(CODECS) + 4


@pytest.mark.case(AREA, "modes append and errorifexists write, overwrite and ignore are refused")
def test_modes(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    for mode in ("append", "errorifexists"):
        spark.write([ROW], "key", "value", mode=mode, topic=topic)
    for mode in ("overwrite", "ignore"):
        spark.fails(spark.write, [ROW], "key", "value", mode=mode, topic=topic).says("", mode.capitalize())
    assert raw.list_offset(topic, -1)["offset"] == 2


@pytest.mark.case(AREA, "no topic at all, a null topic, no value column, columns of a wrong type")
def test_unfit_columns(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    spark.fails(spark.write, [ROW], "key", "value").says("AnalysisException", "topic option required")
    spark.fails(spark.write, [ROW], "topic", "key", "value").says("", "null topic")
    spark.fails(spark.write, [ROW], "key", topic=topic).says("AnalysisException", "'value' not found")
    wrong = spark.fails(spark.write, [ROW], "1 AS key", "value", topic=topic)
    wrong.says("AnalysisException", "key attribute")
    assert raw.list_offset(topic, -1)["offset"] == 0


@pytest.mark.case(AREA, "a partition that the topic has not")
def test_no_such_partition(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    how: dict[str, Any] = {"topic": topic, "kafka.max.block.ms": "1500"}
    failure = spark.fails(spark.write, [ROW | {"partition": 7}], "key", "value", "partition", **how)
    failure.says("", "")
    assert raw.list_offset(topic, -1)["offset"] == 0


@pytest.mark.case(AREA, "a topic that nobody made: made with the broker's defaults")
def test_unknown_topic(spark: Spark, raw: RawConnection, unused_name: Any) -> None:
    topic = unused_name()
    spark.write([ROW] * 3, "key", "value", topic=topic)
    assert raw.list_offset(topic, -1)["offset"] == 3


@pytest.mark.case(AREA, "a name that no topic may have: the broker's error")
def test_bad_name(spark: Spark) -> None:
    failure = spark.fails(spark.write, [ROW], "key", "value", topic="not a topic's name")
    failure.says("InvalidTopicException", "")


@pytest.mark.case(AREA, "a record too large: for the topic, for the producer")
def test_too_large(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"max.message.bytes": "5000"})
    large = {"value": text(b"x" * 9000)}
    failure = spark.fails(spark.write, [large], "value", topic=topic)
    failure.says("RecordTooLargeException", "")
    own = {"topic": topic, "kafka.max.request.size": "2000"}
    spark.fails(spark.write, [large], "value", **own).says("RecordTooLargeException", "max.request.size")
    assert raw.list_offset(topic, -1)["offset"] == 0


@pytest.mark.spark("both")
@pytest.mark.case(AREA, "stream from a topic into another, twice from one checkpoint")
def test_copy(spark: Spark, java: Client, raw: RawConnection, topic: str, new_topic: NewTopic) -> None:
    sink = new_topic()
    java.produce(topic, [Message(b"last", key=b"k", headers=(("h", b"1"),))])
    assert spark.copy(topic, sink, kept=False, **EARLIEST) == 21
    raw.produce(topic, batch([b"new"]))
    assert spark.copy(topic, sink, kept=False, **EARLIEST) == 1
    found = java.read(sink, 22)
    written = [b"%d/%d" % (partition, n) for partition in range(2) for n in range(10)]
    assert sorted(each.value or b"" for each in found) == sorted([*written, b"last", b"new"])
    assert (b"k", b"last", (("h", b"1"),)) in [each.content() for each in found]


@pytest.mark.case(AREA, "stream into the topics of a column, trigger processingTime, output mode update")
def test_stream_columns(spark: Spark, raw: RawConnection, topic: str, new_topic: NewTopic) -> None:
    even, odd = new_topic(), new_topic()
    columns = [f"IF(offset % 2 = 0, '{even}', '{odd}') AS topic", "value"]
    often = {"processingTime": "200 milliseconds"}
    how: dict[str, Any] = {"subscribe": topic, "trigger": often, "kept": False, "mode": "update", **EARLIEST}
    with spark.open(sink={}, columns=columns, **how) as query:
        query.took(20)
        raw.produce(topic, batch([b"even"]))
        query.took(21)
    assert sorted(stored(raw, even, 0))[-1] == b"even"
    assert [len(stored(raw, each, 0)) for each in (even, odd)] == [11, 10]


@pytest.mark.case(AREA, "stream into a topic that takes no such record: it ends with the broker's error")
def test_stream_too_large(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    source, sink = new_topic(), new_topic(configs={"max.message.bytes": "5000"})
    raw.produce(source, batch([b"x" * 9000]))
    failure = spark.fails(spark.copy, source, sink, kept=False, **EARLIEST)
    failure.says("RecordTooLargeException", "")
    assert raw.list_offset(sink, -1)["offset"] == 0


@pytest.mark.case(AREA, "lock headers: the same rows a second time fail the job")
@pytest.mark.parametrize("target", LOCKSTEP, indirect=True)
def test_locked(spark: Spark, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"lockstep.locks": "true"})

    def row(value: bytes, **asked: bytes) -> dict[str, Any]:
        headers = [[f"lockstep-{name.replace('_', '-')}", text(each)] for name, each in asked.items()]
        return {"value": text(value), "headers": headers, "partition": 0}

    how: dict[str, Any] = {"topic": topic, "includeHeaders": True}
    rows = [row(b"%d" % n, hwm=b"-1", write_lock=b"seat/%d" % n) for n in range(3)]
    spark.write(rows, "value", "headers", "partition", **how)
    again = spark.fails(spark.write, rows, "value", "headers", "partition", **how)
    again.says("", "LOCKSTEP_REFUSED reason=LOCK")
    assert sorted(values(spark.read(subscribe=topic))) == [b"0", b"1", b"2"], "and nothing of it is there"
    caught_up = [row(b"again", hwm=b"2", write_lock=b"seat/1")]
    spark.write(caught_up, "value", "headers", "partition", **how)
    assert raw.list_offset(topic, -1)["offset"] == 4
