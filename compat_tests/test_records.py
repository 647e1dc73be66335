"""What is written comes back the same: codecs, headers, nulls, timestamps, sizes, acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compat_tests.clients.face import CODECS, Client, Message, Refused
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, values_in

MESSAGE_TOO_LARGE = 10
AN_HOUR_MS = 3_600_000


def _text(number: int) -> bytes:
    """A value that compresses, and differs from its neighbours."""
    return b"record %06d " % number * 20


def _written_and_read(client: Client, topic: str, messages: list[Message], **how: object) -> None:
    """Write, read back, compare everything the writer gave."""
    offsets = client.produce(topic, messages, **how)  # type: ignore[arg-type]
    assert offsets in ([], list(range(len(messages)))), "offsets are dense and in order"
    found = client.read(topic, len(messages))
    assert [each.content() for each in found] == [(m.key, m.value, m.headers) for m in messages]
    assert [each.offset for each in found] == list(range(len(messages)))
    for stored, message in zip(found, messages, strict=True):
        assert message.timestamp_ms in (None, stored.timestamp_ms)


@pytest.mark.case("Records", "codec {codec}")
@pytest.mark.parametrize("codec", CODECS)
def test_codec(client: Client, new_topic: NewTopic, codec: str) -> None:
    client.needs(f"codec {codec}")
    _written_and_read(
        client, new_topic(), [Message(_text(n), key=b"k%d" % n) for n in range(60)], codec=codec
    )


@pytest.mark.case("Records", "headers: several, repeated names, empty values")
def test_headers(client: Client, new_topic: NewTopic) -> None:
    empty = () if "empty header values" in client.cannot else (("empty", b""),)
    headers = (("trace", b"1"), ("trace", b"2"), *empty, ("last", b"z"))
    _written_and_read(client, new_topic(), [Message(b"a", headers=headers), Message(b"b")])


@pytest.mark.case("Records", "headers with null values")
def test_null_header_value(client: Client, new_topic: NewTopic) -> None:
    client.needs("null header values")
    _written_and_read(client, new_topic(), [Message(b"a", headers=(("gone", None), ("here", b"1")))])


@pytest.mark.case("Records", "null key; null value (tombstone)")
def test_null_key_and_value(client: Client, new_topic: NewTopic) -> None:
    messages = [Message(b"no key"), Message(None, key=b"tombstone"), Message(b"both", key=b"key")]
    _written_and_read(client, new_topic(), messages)


@pytest.mark.case("Records", "null key and null value in one record")
def test_all_null(client: Client, new_topic: NewTopic) -> None:
    client.needs("null key and value")
    _written_and_read(client, new_topic(), [Message(None)])


@pytest.mark.case("Records", "empty key and empty value are not null")
def test_empty_is_not_null(client: Client, new_topic: NewTopic) -> None:
    client.needs("empty key", "empty value")
    _written_and_read(client, new_topic(), [Message(b"", key=b"k"), Message(b"v", key=b"")])


@pytest.mark.case("Records", "CreateTime: the producer's timestamps")
def test_create_time(client: Client, new_topic: NewTopic) -> None:
    client.needs("explicit timestamps")
    base = int(time.time() * 1000) - AN_HOUR_MS
    # not in order: the last must not win over the first
    messages = [Message(b"t%d" % n, timestamp_ms=base + step) for n, step in enumerate((500, 0, 70_000, 1))]
    topic = new_topic()
    _written_and_read(client, topic, messages)
    assert {each.timestamp_type for each in client.read(topic, 4)} <= {"CreateTime", None}


@pytest.mark.case("Records", "LogAppendTime: the broker's timestamps")
def test_log_append_time(client: Client, new_topic: NewTopic) -> None:
    client.needs("LogAppendTime")
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    old = None if "explicit timestamps" in client.cannot else before - AN_HOUR_MS
    client.produce(topic, [Message(b"x", timestamp_ms=old), Message(b"y", timestamp_ms=old)], codec="gzip")
    found = client.read(topic, 2)
    assert [each.value for each in found] == [b"x", b"y"]
    assert all(before <= each.timestamp_ms <= int(time.time() * 1000) for each in found)
    assert {each.timestamp_type for each in found} <= {"LogAppendTime", None}


@pytest.mark.case("Records", "a 900 kB record under default limits")
def test_large_record(client: Client, new_topic: NewTopic) -> None:
    _written_and_read(client, new_topic(), [Message(bytes(range(256)) * 3515 + b"end")])


@pytest.mark.case("Records", "a 3 MB record where topic and client allow it")
def test_raised_limit(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"max.message.bytes": "4000000"})
    _written_and_read(client, topic, [Message(b"3 MB" * 750_000)], max_request_bytes=4_000_000)


@pytest.mark.case("Records", "a record beyond max.message.bytes is refused, the next one is not")
def test_too_large(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic(configs={"max.message.bytes": "10000"})
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Message(b"x" * 50_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Message(b"small")])
    assert values_in(raw.fetch(topic, 0)["records"]) == [(0, b"small")]


@pytest.mark.case("Producing", "a batch beyond max.message.bytes is split and sent again")
def test_split(client: Client, new_topic: NewTopic) -> None:
    client.needs("split")
    topic = new_topic(configs={"max.message.bytes": "10000"})
    messages = [Message(b"%04d" % n * 500) for n in range(30)]
    client.produce(topic, messages, batch_bytes=100_000, idempotent=True)
    assert [each.value for each in client.read(topic, 30)] == [each.value for each in messages]


@pytest.mark.case("Producing", "acks={acks}")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, new_topic: NewTopic, acks: str) -> None:
    client.needs(f"acks={acks}")
    topic = new_topic()
    client.produce(topic, [Message(b"a%d" % n) for n in range(5)], acks=acks)
    assert [each.value for each in client.read(topic, 5)] == [b"a%d" % n for n in range(5)]


@pytest.mark.case("Producing", "idempotent producer, many small batches in order")
def test_idempotent(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    client.needs("idempotence")
    topic = new_topic()
    messages = [Message(b"%d" % n + b"." * 90) for n in range(400)]
    client.produce(topic, messages, idempotent=True, batch_bytes=1000)
    assert [each.value for each in client.read(topic, 400)] == [each.value for each in messages]
    assert raw.list_offset(topic, -1)["offset"] == 400


@pytest.mark.case("Producing", "to 24 partitions, read by one consumer of all")
def test_many_partitions(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=24)
    client.produce(topic, [Message(b"p%d" % n, partition=n) for n in range(24)])
    found = client.read(topic, 24, partitions=range(24))
    assert sorted((each.partition, each.value) for each in found) == [(n, b"p%d" % n) for n in range(24)]


@pytest.mark.case("Producing", "creates the topic (auto.create.topics.enable)")
def test_auto_creation(client: Client, unused_name: Callable[[], str], raw: RawConnection) -> None:
    client.needs("auto creation")
    topic = unused_name()
    client.produce(topic, [Message(b"first")])
    assert [each.value for each in client.read(topic, 1)] == [b"first"]
    (described,) = raw.call("metadata", 12, topics=[{"name": topic}])["topics"]
    assert len(described["partitions"]) == 1, "num.partitions is 1"
