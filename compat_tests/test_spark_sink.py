"""The exactly-once sink in a real Spark session, over a real broker: rows, restarts, failures, refusals."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest

from compat_tests.harness import World
from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.targets import LockstepTarget
from tests.campaigns.exactly_once import committed

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockstepTarget]:
    with LockstepTarget(directory=tmp_path_factory.mktemp("sink")) as target:
        yield target


class Sink:
    """One topic, and the session pointed at it."""

    def __init__(self, session: LineDriver, broker: LockstepTarget) -> None:
        self.session = session
        self.broker = broker
        self.topic = self.new_topic()

    def new_topic(self) -> str:
        name = f"t-{uuid4().hex[:12]}"
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self.broker.bootstrap, "log_level": 0}
        )
        wanted = [confluent_kafka.admin.NewTopic(name, PARTITIONS, -1)]  # type: ignore[attr-defined]
        for future in admin.create_topics(wanted, operation_timeout=20).values():
            future.result(30)
        return name

    def settings(self, **options: str) -> dict[str, str]:
        found = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic, **options}
        return {name: text for name, text in found.items() if text}

    def write(
        self, rows: list[dict[str, Any]], *columns: str, format: str = "lockstep", **options: str
    ) -> None:
        said = [_said(each) for each in rows]
        self.session.ask("write", self.settings(**options), rows=said, columns=list(columns), sink=format)

    def read(self, topic: str = "") -> list[Any]:
        return list(committed(self.broker.bootstrap, topic or self.topic, PARTITIONS))


def _said(row: dict[str, Any]) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    found = {name: text(each) if name in ("key", "value") else each for name, each in row.items()}
    if "headers" in row:
        found["headers"] = [[name, text(value)] for name, value in row["headers"]]
    return found


@pytest.fixture
def sink(world: World, broker: LockstepTarget) -> Sink:
    return Sink(world.spark_connector(), broker)


def test_all_of_a_row_arrives(sink: Sink) -> None:
    stamp = 1_700_000_000_123
    row = {"key": b"k", "value": b"v", "partition": 2, "headers": [("a", b"1"), ("b", None)], "millis": stamp}
    sink.write([row], "key", "value", "partition", "headers", "timestamp_millis(millis) AS timestamp")
    (found,) = sink.read()
    assert (found.partition(), found.key(), found.value()) == (2, b"k", b"v")
    assert found.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, stamp)
    assert found.headers() == [("a", b"1"), ("b", None)]


def test_keys_and_values_may_be_null_or_text(sink: Sink) -> None:
    rows: list[dict[str, Any]] = [
        {"key": b"k", "value": None},
        {"key": None, "value": b"v"},
        {"key": None, "value": None},
    ]
    sink.write(rows, "key", "value")
    sink.write([{"key": b"K", "value": b"V"}], "cast(key AS string) AS key", "cast(value AS string) AS value")
    found = {(each.key(), each.value()) for each in sink.read()}
    assert found == {(b"k", None), (None, b"v"), (None, None), (b"K", b"V")}


def test_keys_go_where_the_stock_sink_sends_them(sink: Sink) -> None:
    rows = [{"key": b"key-%d" % number, "value": b"v"} for number in range(60)]
    stock = sink.new_topic()
    sink.write(rows, "key", "value")
    sink.write(rows, "key", "value", format="kafka", topic=stock)
    ours = {each.key(): each.partition() for each in sink.read()}
    assert ours == {each.key(): each.partition() for each in sink.read(stock)}
    assert set(ours.values()) == set(range(PARTITIONS))


def test_a_column_names_the_topic_unless_an_option_does(sink: Sink) -> None:
    other = sink.new_topic()
    rows = [{"topic": other, "value": b"there"}, {"topic": sink.topic, "value": b"here"}]
    sink.write(rows, "topic", "value", topic="")
    assert [each.value() for each in sink.read(other)] == [b"there"]
    sink.write(rows[:1], "topic", "value")
    assert sorted(each.value() for each in sink.read()) == [b"here", b"there"]


def test_a_missing_topic_is_created_as_by_the_stock_sink(sink: Sink) -> None:
    for number, kind in enumerate(("lockstep", "kafka")):
        topic = f"made-by-{kind}-{uuid4().hex[:8]}"
        sink.write([{"value": b"v"}] * (number + 1), "value", format=kind, topic=topic)
        found = committed(sink.broker.bootstrap, topic, 1)
        assert [each.value() for each in found] == [b"v"] * (number + 1)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(sink: Sink, codec: str) -> None:
    sink.write([{"value": b"v" * 1000}] * 20, "value", **{"kafka.compression.type": codec})
    assert [each.value() for each in sink.read()] == [b"v" * 1000] * 20


def test_a_stream_goes_on_where_it_was(sink: Sink, tmp_path: Path) -> None:
    source = sink.new_topic()
    written = 0
    for _ in range(2):
        rows = [{"value": b"%d" % number} for number in range(written, written + 50)]
        written += 50
        sink.write(rows, "value", topic=source)
        options = {"kafka.bootstrap.servers": sink.broker.bootstrap, "subscribe": source}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        asked = {"from": options, "directory": str(tmp_path)}
        taken = sink.session.ask("copy_exactly", sink.settings(), **asked)
        assert taken >= 50
    assert sorted(int(each.value()) for each in sink.read()) == list(range(written))


def test_nothing_of_a_batch_that_fails_is_seen(sink: Sink) -> None:
    with pytest.raises(DriverFailed, match="no such row"):
        sink.session.ask("fail", sink.settings(), records=30_000)
    assert sink.read() == []
    sink.write([{"value": b"v"}], "value")
    assert [each.value() for each in sink.read()] == [b"v"]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["value"], {"topic": ""}, "option topic: is missing"),
        (["key"], {}, "column value: is missing"),
        (["value", "1 AS other"], {}, "column other: is none of"),
        (["cast(1 AS int) AS value"], {}, "must be binary or string"),
        (["value"], {"kafka.acks": "1"}, "the sink waits for all replicas always"),
        (
            ["value"],
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "500"},
            "cannot connect",
        ),
        (["value", "7 AS partition"], {}, "partition 7 of"),
    ],
)
def test_rows_that_cannot_be_written_are_reported(
    sink: Sink, columns: list[str], options: dict[str, str], words: str
) -> None:
    with pytest.raises(DriverFailed) as failed:
        sink.write([{"value": b"v"}], *columns, **options)
    said = str(failed.value)
    assert words in said
    assert "Writing job failed" not in said, "an abort that raised stands in front of the reason"
    assert sink.read() == []
