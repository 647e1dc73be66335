"""rskafka, a client in Rust that speaks few APIs in old versions: topics, records, offsets."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Message, Refused
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.targets import Target
from compat_tests.until import until

pytestmark = pytest.mark.timeout(1900)  # the first case waits for the build

AREA = "rskafka"
OFFSET_OUT_OF_RANGE = 1
TOPIC_ALREADY_EXISTS = 36

Ask = Callable[..., Any]


@pytest.fixture
def rskafka(world: World, target: Target) -> Ask:
    """`rskafka("create", topic=..., partitions=1)`: one question about the broker."""

    def ask(what: str, **fields: Any) -> Any:
        return world.rskafka().ask(what, {"bootstrap.servers": target.bootstrap}, **fields)

    return ask


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _record(message: Message) -> dict[str, Any]:
    return {
        "key": _encoded(message.key),
        "value": _encoded(message.value),
        "headers": {name: _encoded(value) for name, value in message.headers},
        "timestamp_ms": message.timestamp_ms,
    }


def _messages(base_ms: int) -> list[Message]:
    found = [
        Message(
            b"value %d " % number * 50,
            key=b"key",
            headers=(("h", b"\x00\xff"),),
            timestamp_ms=base_ms + number,
        )
        for number in range(20)
    ]
    return [*found, Message(None, key=b"tombstone", timestamp_ms=base_ms + 20)]


@pytest.mark.case(AREA, "a topic is created, listed with its partitions, refused when it exists, deleted")
def test_topics(rskafka: Ask, unused_name: Callable[[], str]) -> None:
    topic = unused_name()
    rskafka("create", topic=topic, partitions=3)
    until(3, lambda: rskafka("topics").get(topic))
    with pytest.raises(Refused) as refused:
        rskafka("create", topic=topic, partitions=3)
    assert refused.value.code == TOPIC_ALREADY_EXISTS
    rskafka("delete", topic=topic)
    until(None, lambda: rskafka("topics").get(topic))


@pytest.mark.case(AREA, "records keep key, value, headers and timestamp: {codec}, written by it")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_produce(rskafka: Ask, world: World, target: Target, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(2)
    written = _messages(int(time.time() * 1000) - 60_000)
    records = [_record(each) for each in written]
    assert rskafka("produce", topic=topic, partition=1, records=records, codec=codec) == list(range(21))
    found = world.client(Confluent.name, target.name).read(topic, 21, partitions=(1,))
    assert [(each.content(), each.timestamp_ms) for each in found] == [
        ((each.key, each.value, each.headers), each.timestamp_ms) for each in written
    ]


@pytest.mark.case(AREA, "records keep key, value, headers and timestamp: {codec}, read by it")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_fetch(rskafka: Ask, world: World, target: Target, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    written = _messages(int(time.time() * 1000) - 60_000)
    world.client(Confluent.name, target.name).produce(topic, written, codec=codec)
    found = rskafka("fetch", topic=topic, partition=0, offset=0, wait_ms=1000)
    assert found["high_watermark"] == len(written)
    assert found["records"] == [{"offset": offset, **_record(each)} for offset, each in enumerate(written)]


@pytest.mark.case(AREA, "offsets: first, next, by time; records are deleted up to one")
def test_offsets(rskafka: Ask, new_topic: NewTopic) -> None:
    topic, base_ms = new_topic(), int(time.time() * 1000) - 60_000
    records = [_record(each) for each in _messages(base_ms)]
    rskafka("produce", topic=topic, partition=0, records=records, codec="none")
    assert rskafka("offsets", topic=topic, partition=0) == [0, 21]
    assert rskafka("offset_for_time", topic=topic, partition=0, timestamp_ms=base_ms + 7) == 7
    rskafka("delete_records", topic=topic, partition=0, offset=5)
    assert rskafka("offsets", topic=topic, partition=0) == [5, 21]


@pytest.mark.case(AREA, "a fetch behind the end is refused")
def test_out_of_range(rskafka: Ask, new_topic: NewTopic) -> None:
    with pytest.raises(Refused) as refused:
        rskafka("fetch", topic=new_topic(), partition=0, offset=7, wait_ms=100)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
