"""Produce by hand: sequences, broken batches, limits, every version. Expected is what Kafka 4.4.0 does."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection, batch, raw_connection, values_in, with_crc
from compat_tests.targets import Target

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100

MESSAGE_MAX_BYTES = 1_048_588
"""Kafka's default of max.message.bytes: 1 MiB and the 12 bytes before the batch length's end."""
MAX_SEQUENCE = 2**31 - 1


class _Producer:
    """Sends batches of one producer id to one partition, with the sequence numbers a case wants."""

    def __init__(self, raw: RawConnection, topic: str) -> None:
        self._raw = raw
        self._topic = topic
        self.producer_id, self.producer_epoch = raw.producer_id()

    def send(
        self, base_sequence: int, count: int = 1, *, producer_epoch: int | None = None
    ) -> tuple[int, int]:
        """Error code and base offset."""
        epoch = self.producer_epoch if producer_epoch is None else producer_epoch
        values: list[bytes | None] = [b"seq %d" % base_sequence] * count
        data = batch(values, producer=(self.producer_id, epoch), base_sequence=base_sequence)
        answer = self._raw.produce(self._topic, data)
        return answer["error_code"], answer["base_offset"]


@pytest.fixture
def producer(raw: RawConnection, new_topic: NewTopic) -> _Producer:
    return _Producer(raw, new_topic())


@pytest.mark.case("Idempotence on the wire", "a batch sent again gets its first offset and is stored once")
def test_duplicate(producer: _Producer, raw: RawConnection) -> None:
    assert producer.send(0, 3) == (0, 0)
    assert producer.send(3, 2) == (0, 3)
    assert producer.send(0, 3) == (0, 0)
    assert producer.send(3, 2) == (0, 3)
    assert producer.send(5) == (0, 5)


@pytest.mark.case(
    "Idempotence on the wire", "the last five batches are remembered, the sixth is out of order"
)
def test_five_batches(producer: _Producer) -> None:
    for n in range(8):
        assert producer.send(n) == (0, n)
    for n in range(3, 8):
        assert producer.send(n) == (0, n), "one of the last five"
    assert producer.send(2)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.case("Idempotence on the wire", "a gap, and an overlap, are OUT_OF_ORDER_SEQUENCE_NUMBER")
def test_out_of_order(producer: _Producer) -> None:
    assert producer.send(0, 2) == (0, 0)
    assert producer.send(5)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1, 4)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(2) == (0, 2), "nothing was consumed by the refusals"


@pytest.mark.case("Idempotence on the wire", "a higher epoch starts at 0, a lower one is refused")
def test_producer_epochs(producer: _Producer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(1, producer_epoch=1)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, producer_epoch=1) == (0, 1)
    assert producer.send(1, producer_epoch=0)[0] == INVALID_PRODUCER_EPOCH


@pytest.mark.case("Idempotence on the wire", "an unknown producer may start anywhere")
def test_unknown_producer(producer: _Producer) -> None:
    assert producer.send(7) == (0, 0)
    assert producer.send(8) == (0, 1)


@pytest.mark.case("Idempotence on the wire", "sequences wrap at 2^31")
def test_wrap(producer: _Producer) -> None:
    assert producer.send(MAX_SEQUENCE - 1, 3) == (0, 0)  # MAX-1, MAX, 0
    assert producer.send(1) == (0, 3)
    assert producer.send(MAX_SEQUENCE - 1, 3) == (0, 0)


@pytest.mark.case("Idempotence on the wire", "InitProducerId gives every producer an id of its own")
def test_producer_ids(raw: RawConnection) -> None:
    ids = [raw.producer_id() for _ in range(20)]
    assert len({producer_id for producer_id, _ in ids}) == 20
    assert {producer_epoch for _, producer_epoch in ids} == {0}


# -- batches that must not be stored -----------------------------------------------------------------------


def _changed(place: int, layout: str, value: int) -> bytes:
    """A batch of two records with one header field changed and the CRC right again."""
    data = bytearray(batch([b"x", b"y"]))
    struct.pack_into(layout, data, place, value)
    return with_crc(data)


def _bad_crc() -> bytes:
    data = bytearray(batch([b"x"]))
    data[-1] ^= 1
    return bytes(data)


def _old_magic() -> bytes:
    data = bytearray(batch([b"x"]))
    data[16] = 1
    return bytes(data)


def _in_two_hours() -> bytes:
    return batch([b"x"], timestamp_ms=int(time.time() * 1000) + 7_200_000)


REFUSED: dict[str, tuple[int, Callable[[], bytes]]] = {
    "wrong CRC: CORRUPT_MESSAGE": (CORRUPT_MESSAGE, _bad_crc),
    "magic 1: INVALID_RECORD": (INVALID_RECORD, _old_magic),
    "record count too high: INVALID_RECORD": (INVALID_RECORD, lambda: _changed(57, ">i", 3)),
    "last offset delta too high: INVALID_RECORD": (INVALID_RECORD, lambda: _changed(23, ">i", 5)),
    "control batch: INVALID_RECORD": (INVALID_RECORD, lambda: _changed(21, ">h", 0x20)),
    "base offset not 0: INVALID_RECORD": (INVALID_RECORD, lambda: struct.pack(">q", 7) + batch([b"x"])[8:]),
    "no batch at all: INVALID_RECORD": (INVALID_RECORD, lambda: b""),
    "no record in the batch: INVALID_RECORD": (INVALID_RECORD, lambda: with_crc(bytearray(batch([])))),
    "two batches: INVALID_RECORD": (INVALID_RECORD, lambda: batch([b"x"]) + batch([b"y"])),
    "cut batch: INVALID_RECORD": (INVALID_RECORD, lambda: batch([b"x"])[:-1]),
    "timestamp two hours ahead: INVALID_TIMESTAMP": (INVALID_TIMESTAMP, _in_two_hours),
}


@pytest.mark.case("Refused batches", "{fault}")
@pytest.mark.parametrize("fault", list(REFUSED))
def test_refused(raw: RawConnection, new_topic: NewTopic, fault: str) -> None:
    code, make = REFUSED[fault]
    topic = new_topic()
    answer = raw.produce(topic, make())
    assert (answer["error_code"], answer["base_offset"]) == (code, -1)
    assert raw.produce(topic, batch([b"good"]))["base_offset"] == 0, "nothing of it was stored"


@pytest.mark.case("Refused batches", "times beyond 64 bits in a compacted topic: INVALID_TIMESTAMP")
def test_times_beyond_64_bits(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"cleanup.policy": "compact"})
    data = bytearray(batch([b"x", b"y"], key=b"k"))
    struct.pack_into(">q", data, 27, (1 << 63) - 1)
    answer = raw.produce(topic, with_crc(data))
    assert (answer["error_code"], answer["base_offset"]) == (INVALID_TIMESTAMP, -1)
    assert raw.produce(topic, batch([b"good"], key=b"k"))["base_offset"] == 0


@pytest.mark.case("Refused batches", "exactly max.message.bytes is stored, one byte more: MESSAGE_TOO_LARGE")
def test_exact_limit(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    overhead = len(batch([b"x" * 1_000_000])) - 1_000_000
    fits = batch([b"x" * (MESSAGE_MAX_BYTES - overhead)])
    assert len(fits) == MESSAGE_MAX_BYTES
    assert raw.produce(topic, fits)["error_code"] == 0
    too_large = batch([b"x" * (MESSAGE_MAX_BYTES - overhead + 1)])
    assert raw.produce(topic, too_large)["error_code"] == MESSAGE_TOO_LARGE
    assert raw.list_offset(topic, -1)["offset"] == 1


@pytest.mark.case("Refused batches", "unknown topic, partition, topic id; acks=5; zstd before v7")
def test_refused_requests(raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic = new_topic()
    good = batch([b"x" * 100], codec=4)
    assert raw.produce(unused_name(), good)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(topic, good, partition=9)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    unknown = raw.produce(topic, good, api_version=13, topic_id=uuid.uuid4())
    assert unknown["error_code"] == UNKNOWN_TOPIC_ID
    assert raw.produce(topic, good, acks=5)["error_code"] == INVALID_REQUIRED_ACKS
    assert raw.produce(topic, good, api_version=6)["error_code"] == UNSUPPORTED_COMPRESSION_TYPE
    assert raw.list_offset(topic, -1)["offset"] == 0


@pytest.mark.case("Refused batches", "with acks=0 the connection is closed")
def test_acks_0_refused(target: Target, new_topic: NewTopic) -> None:
    topic = new_topic()
    data = [{"name": topic, "partition_data": [{"index": 0, "records": _bad_crc()}]}]
    with raw_connection(target.bootstrap) as connection:
        connection.send("produce", 9, answered=False, acks=0, timeout=1000, topic_data=data)
        assert connection.is_closed_by_peer()


@pytest.mark.case("Every version", "Produce v{version}")
@pytest.mark.parametrize("version", range(3, 14))
def test_produce_versions(raw: RawConnection, unused_name: Callable[[], str], version: int) -> None:
    topic = unused_name()
    topic_id = raw.create_topic(topic)
    answer = raw.produce(topic, batch([b"a", b"b"]), api_version=version, topic_id=topic_id)
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    assert values_in(raw.fetch(topic, 0)["records"]) == [(0, b"a"), (1, b"b")]


@pytest.mark.case("Every version", "several topics and partitions in one Produce, one of them wrong")
def test_mixed_request(raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]) -> None:
    topic, missing = new_topic(partitions=2), unused_name()
    parts = [{"index": n, "records": batch([b"p%d" % n])} for n in (0, 1, 7)]
    data = [{"name": topic, "partition_data": parts}, {"name": missing, "partition_data": parts[:1]}]
    answer = raw.call("produce", 9, acks=-1, timeout=5000, topic_data=data)
    codes = {
        (each["name"], part["index"]): part["error_code"]
        for each in answer["responses"]
        for part in each["partition_responses"]
    }
    assert codes == {(topic, 0): 0, (topic, 1): 0, (topic, 7): 3, (missing, 0): 3}
    assert values_in(raw.fetch(topic, 0, partition=1)["records"]) == [(0, b"p1")]


@pytest.mark.case(
    "Refused batches", "max.decompressed.message.bytes is that of each record of a compressed batch"
)
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompressed_records(raw: RawConnection, new_topic: NewTopic, codec: int) -> None:
    topic = new_topic(configs={"max.decompressed.message.bytes": "1007"})
    assert raw.produce(topic, batch([b"v" * 1000] * 3, codec=codec))["error_code"] == 0
    assert raw.produce(topic, batch([b"v", b"v" * 1001], codec=codec))["error_code"] == INVALID_RECORD
    assert raw.produce(topic, batch([b"v" * 5000]))["error_code"] == 0, "an uncompressed one is not looked at"
    assert raw.list_offset(topic, -1)["offset"] == 4


# -- what the broker computes ------------------------------------------------------------------------------


@pytest.mark.case(
    "Produce on the wire", "a batch whose newest time is not told is found by its records' times"
)
@pytest.mark.parametrize("codec", [0, 3])
def test_the_newest_time_is_computed(raw: RawConnection, new_topic: NewTopic, codec: int) -> None:
    topic, now = new_topic(), int(time.time() * 1000)
    data = bytearray(batch([b"x", b"y"], timestamp_ms=now, codec=codec))
    struct.pack_into(">q", data, 35, -1)
    assert raw.produce(topic, with_crc(data))["error_code"] == 0
    for wanted, offset in ((now, 0), (now + 1, 1), (now + 2, -1)):
        found = raw.list_offset(topic, wanted)
        assert (found["error_code"], found["offset"]) == (0, offset)
    (newest,) = struct.unpack_from(">q", raw.fetch(topic, 0)["records"], 35)
    assert newest == now + 1


@pytest.mark.case("Produce on the wire", "message.timestamp.before.max.ms counts for every record of a batch")
def test_each_record_is_within_the_limit(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.before.max.ms": "3600000"})
    now = int(time.time() * 1000)
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for place, stamp in enumerate((now, now - 7_200_000)):
        builder.append(place, stamp, None, b"x", [])
    assert raw.produce(topic, bytes(builder.build()))["error_code"] == INVALID_TIMESTAMP
    assert raw.list_offset(topic, -1)["offset"] == 0


@pytest.mark.case("Produce on the wire", "compression.type of a topic is the codec of what is fetched")
@pytest.mark.parametrize(
    ("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_a_topics_codec(raw: RawConnection, new_topic: NewTopic, name: str, codec: int) -> None:
    topic = new_topic(configs={"compression.type": name})
    for place, sent in enumerate((0, 1, 3)):
        answer = raw.produce(topic, batch([b"v" * 300, b"w"], codec=sent))
        assert (answer["error_code"], answer["base_offset"]) == (0, 2 * place)
    at, records = 0, raw.fetch(topic, 0)["records"]
    for place in range(3):
        base_offset, size = struct.unpack_from(">qi", records, at)
        (attributes,) = struct.unpack_from(">h", records, at + 21)
        assert (base_offset, attributes & 7) == (2 * place, codec)
        at += 12 + size
    assert at == len(records)
