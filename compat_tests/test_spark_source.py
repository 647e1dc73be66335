"""`format("lockstep")` in a real Spark session: the rows of Spark's own Kafka source, whatever the broker;
streams, and their position as Kafka's tools show it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.face import CODECS, Client, Message
from compat_tests.clients.java import Java
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.line_driver import DriverFailed
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_face import Spark, values_of, where_of
from compat_tests.targets import Target

_AREA = "Spark connector: source"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_FIRST = int(time.time() * 1000) - 3_600_000
"""An hour ago: what is older than a week would be deleted."""
_TEN_EACH = [(partition, n) for partition in range(2) for n in range(10)]


@pytest.fixture
def spark(world: World, target: Target, tmp_path: Path) -> Spark:
    return Spark(world, target, tmp_path, source="lockstep")


@pytest.fixture
def stock(world: World, target: Target, tmp_path: Path) -> Spark:
    """Spark's own source, which says what is right."""
    return Spark(world, target, tmp_path)


@pytest.fixture
def java(world: World, target: Target) -> Client:
    return world.client(Java.name, target.name)


@pytest.fixture
def topic(new_topic: NewTopic, raw: RawConnection) -> str:
    """Two partitions of ten records in two batches each."""
    name = new_topic(partitions=2)
    for partition in range(2):
        for n in (0, 5):
            values = [b"%d/%d" % (partition, n + m) for m in range(5)]
            raw.produce(name, batch(values, timestamp_ms=_FIRST + n), partition=partition)
    return name


# -- batches ------------------------------------------------------------------------------------------------


@pytest.mark.case(_AREA, "batch read: row for row what Spark's own source reads, every codec, with headers")
def test_as_the_stock_source(spark: Spark, stock: Spark, java: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    java.produce(topic, [Message(b"value", key=b"key", timestamp_ms=_FIRST + 7), Message(None, key=b"gone")])
    java.produce(topic, [Message(b"a", headers=(("h", b"1"), ("h", b"2"), ("n", None))), Message(b"")])
    for codec in CODECS:
        java.produce(topic, [Message(codec.encode() * 500, key=b"%d" % n) for n in range(200)], codec=codec)
    for how in ({}, {"includeHeaders": True}):
        rows = spark.read(subscribe=topic, **how)
        assert len(rows) == 4 + 200 * len(CODECS)
        assert rows == stock.read(subscribe=topic, **how)


@pytest.mark.case(
    _AREA, "batch read: offsets, times, assign and pattern mean what they mean to Spark's own source"
)
@pytest.mark.parametrize(
    "how",
    [
        {"startingOffsets": {"T": {"0": 4, "1": -2}}, "endingOffsets": {"T": {"0": -1, "1": 3}}},
        {"startingTimestamp": str(_FIRST + 3), "endingTimestamp": str(_FIRST + 5)},
        {
            "startingOffsetsByTimestamp": {"T": {"0": _FIRST + 1, "1": _FIRST + 86_400_000}},
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"assign": {"T": [1]}},
        {"subscribePattern": "T.*"},
        {"maxRecordsPerPartition": "3"},
        {"minPartitions": "5"},
    ],
    ids=lambda how: "+".join(how),
)
def test_options(spark: Spark, stock: Spark, topic: str, how: dict[str, object]) -> None:
    def named(found: object) -> object:
        if isinstance(found, dict):
            return {name.replace("T", topic) if name == "T" else name: each for name, each in found.items()}
        return found.replace("T", topic) if isinstance(found, str) else found

    options = {name: named(value) for name, value in how.items()}
    if not {"assign", "subscribePattern"} & set(options):
        options["subscribe"] = topic
    rows, tasks = spark.read_in_tasks(**options)
    assert rows == stock.read(**options) and rows
    if "maxRecordsPerPartition" in how:
        assert tasks == 8
    if "minPartitions" in how:
        assert tasks >= 5


@pytest.mark.case(_AREA, "batch read of an empty topic, and of no topic")
def test_nothing(spark: Spark, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    assert spark.read(subscribe=new_topic()) == []
    with pytest.raises(DriverFailed, match="there is no such topic"):
        spark.read(subscribe=unused_name())


@pytest.mark.case(_AREA, "an option that is not known is refused by name")
def test_unknown_option(spark: Spark, topic: str) -> None:
    with pytest.raises(DriverFailed, match=r"startingoffset: is not known\. Did you mean startingOffsets\?"):
        spark.read(subscribe=topic, startingOffset="earliest")


@pytest.mark.case(
    _AREA, "batch read over compacted gaps, deleted records: the same rows as Spark's own source"
)
def test_deleted(spark: Spark, stock: Spark, java: Client, topic: str) -> None:
    java.delete_records(topic, 0, 6)
    rows = spark.read(subscribe=topic)
    assert rows == stock.read(subscribe=topic)
    assert where_of(rows) == [(0, n) for n in range(6, 10)] + [(1, n) for n in range(10)]


@pytest.mark.case(
    _AREA, "read_committed: aborted records and markers are left out, an open transaction is not waited for"
)
def test_read_committed(
    spark: Spark,
    stock: Spark,
    java: Client,
    raw: RawConnection,
    new_topic: NewTopic,
    unused_name: Callable[[], str],
) -> None:
    topic = new_topic()
    producer = java.transactional(unused_name())
    for value, end in ((b"aborted", producer.abort), (b"one", producer.commit), (b"aborted", producer.abort)):
        producer.begin()
        producer.send(topic, [Message(value)] * 3)
        end()
    raw.produce(topic, batch([b"plain"]))
    producer.begin()
    producer.send(topic, [Message(b"open")])
    try:
        how = {"subscribe": topic, "kafka__isolation__level": "read_committed"}
        rows = spark.read(**how)
        assert values_of(rows) == [b"one"] * 3 + [b"plain"]
        assert rows == stock.read(**how)
        assert spark.read(subscribe=topic) == stock.read(subscribe=topic)
        assert len(spark.read(subscribe=topic)) == 11
    finally:
        producer.abort()
        producer.close()


# -- streams ------------------------------------------------------------------------------------------------


@pytest.mark.case(_AREA, "stream (AvailableNow) from its checkpoint: a second run takes only what is new")
def test_stream(spark: Spark, raw: RawConnection, topic: str) -> None:
    how = {"subscribe": topic, "startingOffsets": "earliest"}
    rows, taken, batches = spark.stream(**how)
    assert (where_of(rows), taken, batches) == (_TEN_EACH, 20, 1)
    raw.produce(topic, batch([b"new"] * 3), partition=1)
    rows, taken, _ = spark.stream(**how)
    assert taken == 3
    assert where_of(rows) == [*_TEN_EACH, (1, 10), (1, 11), (1, 12)], "each once"
    _, taken, _ = spark.stream(**how)
    assert taken == 0


@pytest.mark.case(_AREA, "stream with maxOffsetsPerTrigger: several micro-batches, each record once")
def test_stream_in_batches(spark: Spark, topic: str) -> None:
    rows, taken, batches = spark.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert (taken, batches) == (20, 3)
    assert where_of(rows) == _TEN_EACH


@pytest.mark.case(_AREA, "stream with maxBytesPerTrigger: micro-batches of whole batches of the log")
def test_stream_by_bytes(spark: Spark, topic: str) -> None:
    rows, taken, batches = spark.stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert (taken, batches) == (20, 4), "one batch of the log at a time"
    assert where_of(rows) == _TEN_EACH


@pytest.mark.case(
    _AREA, "kafka-consumer-groups --describe: a stream's position and lag, in one group per checkpoint"
)
def test_lag(
    spark: Spark,
    raw: RawConnection,
    topic: str,
    tool: Callable[..., ToolResult],
    unused_name: Callable[[], str],
) -> None:
    def described(group: str) -> list[list[str]]:
        result = tool(_GROUPS, "--describe", "--group", group)
        assert result.status == 0, result.stdout + result.stderr
        rows = [line.split() for line in result.stdout.splitlines() if line.startswith(group)]
        return sorted(row[1:6] for row in rows)

    how: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "groupIdPrefix": unused_name()}
    spark.stream(**how)
    group = spark.reached["group"]
    assert group.startswith(f"{how['groupIdPrefix']}-")
    raw.produce(topic, batch([b"new"] * 3), partition=1)
    assert described(group) == [[topic, "0", "10", "10", "0"], [topic, "1", "10", "13", "3"]]
    spark.stream(**how)
    assert spark.reached["group"] == group, "the checkpoint keeps it"
    assert described(group) == [[topic, "0", "10", "10", "0"], [topic, "1", "13", "13", "0"]]
    named = unused_name()
    raw.produce(topic, batch([b"newer"]), partition=0)
    spark.stream(**how, kafka__group__id=named)
    assert described(named) == [[topic, "0", "11", "11", "0"], [topic, "1", "13", "13", "0"]]


@pytest.mark.case(_AREA, "stream: a partition that is new between two runs is read from its beginning")
def test_new_partitions(
    spark: Spark, raw: RawConnection, tool: Callable[..., ToolResult], topic: str
) -> None:
    how = {"subscribe": topic, "startingOffsets": "latest"}
    assert spark.stream(**how)[1] == 0
    assert tool(_TOPICS, "--alter", "--topic", topic, "--partitions", "3").status == 0
    raw.produce(topic, batch([b"first"]), partition=2)
    rows, taken, _ = spark.stream(**how)
    assert (where_of(rows), taken) == ([(2, 0)], 1)


@pytest.mark.case(_AREA, "stream from the connector's source into Spark's own sink, with headers")
def test_copy(spark: Spark, java: Client, topic: str, new_topic: NewTopic) -> None:
    sink = new_topic()
    java.produce(topic, [Message(b"last", key=b"k", headers=(("h", b"1"),))])
    assert spark.copy(topic, sink, startingOffsets="earliest") == 21
    found = java.read(sink, 21)
    assert (b"k", b"last", (("h", b"1"),)) in [each.content() for each in found]
