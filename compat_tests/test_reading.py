"""Where a consumer may stand and what it is told: seek, offsets, times, long polls, large values."""

from __future__ import annotations

import time

import pytest

from compat_tests.clients.face import Client, Refused
from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch

OFFSET_OUT_OF_RANGE = 1
_GZIP = 1
_SNAPPY = 2


@pytest.mark.case("Consuming", "seek into the middle of a compressed batch")
def test_seek(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic()
    for first in range(0, 100, 20):
        values = [b"%d" % n for n in range(first, first + 20)]
        assert raw.produce(topic, batch(values, codec=_GZIP))["base_offset"] == first
    found = client.read(topic, 30, start=47)
    assert [(each.offset, each.value) for each in found] == [(n, b"%d" % n) for n in range(47, 77)]


@pytest.mark.case("Consuming", "snappy in the Java client's frames (xerial)")
def test_xerial(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    client.needs("xerial snappy")
    topic = new_topic()
    raw.produce(topic, batch([b"%d" % n * 50 for n in range(20)], codec=_SNAPPY))
    assert [each.value for each in client.read(topic, 20)] == [b"%d" % n * 50 for n in range(20)]


@pytest.mark.case("Consuming", "seek beyond the end is OFFSET_OUT_OF_RANGE")
def test_seek_out_of_range(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    client.needs("offset out of range")
    topic = new_topic()
    raw.produce(topic, batch([b"only"]))
    with pytest.raises(Refused) as refused:
        client.read(topic, 1, start=500, timeout_s=10)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


@pytest.mark.case("Consuming", "beginning and end offsets")
def test_offsets(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic(partitions=2)
    raw.produce(topic, batch([b"a", b"b", b"c"]))
    raw.produce(topic, batch([b"d"]))
    assert client.offsets(topic, 0) == (0, 4)
    assert client.offsets(topic, 1) == (0, 0), "an empty partition"


@pytest.mark.case("Consuming", "offsets by time")
def test_offset_for_time(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic()
    base = int(time.time() * 1000) - 3_600_000
    raw.produce(topic, batch([b"x"] * 10, timestamp_ms=base))  # base ... base+9
    raw.produce(topic, batch([b"y"] * 10, timestamp_ms=base + 1000, codec=_GZIP))
    assert client.offset_for_time(topic, 0, base - 5000) == 0, "before everything"
    assert client.offset_for_time(topic, 0, base + 3) == 3, "inside a batch"
    assert client.offset_for_time(topic, 0, base + 500) == 10, "between two batches"
    assert client.offset_for_time(topic, 0, base + 1004) == 14, "inside a compressed batch"
    if "no offset for a time" not in client.cannot:
        assert client.offset_for_time(topic, 0, base + 5000) is None, "after everything"


@pytest.mark.case("Consuming", "two consumers in long polls wake up when a record arrives")
def test_long_poll(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"old"]))
    first = client.tail(topic, 0, max_wait_ms=9000)
    second = client.tail(topic, 0, max_wait_ms=9000)
    try:
        raw.produce(topic, batch([b"new"]))
        for tail in (first, second):
            found = tail.next(7.0)
            assert found is not None and (found.offset, found.value) == (1, b"new"), "before the wait's end"
    finally:
        first.close()
        second.close()


@pytest.mark.case("Consuming", "400 kB values across many small fetches")
def test_large_values(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic()
    values = [bytes([65 + n]) * 400_000 for n in range(10)]
    for value in values:
        raw.produce(topic, batch([value]))
    found = client.read(topic, 10, partition_fetch_bytes=100_000)
    assert [each.value for each in found] == values


@pytest.mark.case("Consuming", "small batches: 300 of one record each")
def test_many_batches(client: Client, new_topic: NewTopic, raw: RawConnection) -> None:
    topic = new_topic()
    for n in range(300):
        raw.send(
            "produce",
            9,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch([b"%d" % n])}]}],
        )
    for _ in range(300):
        raw.receive()
    found = client.read(topic, 300, partition_fetch_bytes=4000)
    assert [each.value for each in found] == [b"%d" % n for n in range(300)]
