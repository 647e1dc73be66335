"""Compacted topics, written and read by confluent-kafka: Lockstep leaves of them what Apache Kafka leaves."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.kafka_jars import SHORT_LIVED
from compat_tests.targets import KafkaTarget, LockstepTarget, Target

COMMON = {"log.cleaner.backoff.ms": "300"}
SETTINGS = {
    "lockstep": {
        **COMMON,
        "lockstep.segment.bytes": str(1 << 20),
        "lockstep.data.groups": "1",
        "message.max.bytes": "500000",
    },
    "kafka": {**COMMON, "log.cleaner.dedupe.buffer.size": str(8 << 20)},
}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "delete.retention.ms": "60000",
}
RECORDS = 24_000
KEYS = 400


@pytest.fixture(scope="module", params=SETTINGS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    chosen = SETTINGS[request.param]
    with (
        LockstepTarget(chosen)
        if request.param == "lockstep"
        else KafkaTarget(chosen, jvm=SHORT_LIVED) as started
    ):
        yield started


def address(target: Target) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": f"127.0.0.1:{target.port}"}


def create(target: Target, topic: str) -> None:
    admin = AdminClient(address(target))
    admin.create_topics([NewTopic(topic, 1, 1, config=TOPIC_CONFIG)])[topic].result(20)


def written(target: Target, topic: str, seed: int) -> dict[bytes, bytes | None]:
    """Records of few keys, some of them tombstones; the last value of each."""
    rng = random.Random(seed)
    last: dict[bytes, bytes | None] = {}
    codecs = ("none", "zstd", "lz4", "snappy", "gzip")
    for codec in codecs:
        settings = {
            "compression.type": codec,
            "linger.ms": 5,
            "batch.size": 100_000,
            "enable.idempotence": True,
        }
        producer = Producer({**address(target), **settings})
        for _ in range(RECORDS // len(codecs)):
            key = b"key %d" % int(KEYS * rng.random() ** 2)
            value = None if rng.random() < 0.05 else rng.randbytes(rng.randrange(50, 500))
            last[key] = value
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=_delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
    return last


def _delivered(error: KafkaError | None, message: object) -> None:
    assert error is None, error


def read(target: Target, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer({**address(target), "group.id": "g", "enable.auto.commit": False, "check.crcs": True})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        found: list[tuple[int, bytes, bytes | None]] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.5):
                assert message.error() is None, message.error()
                key, offset = message.key(), message.offset()
                assert isinstance(key, bytes) and offset is not None
                found.append((offset, key, message.value()))
            if found and found[-1][0] == end - 1:
                return found
        raise AssertionError(f"read up to {found[-1:]}, the end is {end}")
    finally:
        consumer.close()


def test_the_last_value_of_each_key_is_what_is_left(target: Target) -> None:
    create(target, "compacted")
    expected = written(target, "compacted", 7)
    deadline = time.monotonic() + 60
    while True:
        records = read(target, "compacted")
        if len(records) < RECORDS / 2 or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert len(records) < RECORDS / 2
    assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
    there = {key: value for _, key, value in records}
    assert {k: v for k, v in there.items() if v is not None} == {
        k: v for k, v in expected.items() if v is not None
    }
    assert {k for k, v in there.items() if v is None} == {k for k, v in expected.items() if v is None}


def test_a_record_without_a_key_is_refused(target: Target) -> None:
    create(target, "keyed")
    refusals: list[KafkaError | None] = []
    producer = Producer({**address(target), "message.timeout.ms": 10_000})
    producer.produce("keyed", b"v", None, on_delivery=lambda error, message: refusals.append(error))
    producer.produce("keyed", b"v", b"", on_delivery=lambda error, message: refusals.append(error))
    producer.flush(20)
    codes = [error.code() if error is not None else None for error in refusals]
    assert KafkaError.INVALID_RECORD in codes
    admin = AdminClient(address(target))  # kept: what it was asked for ends with it, unanswered
    refused = admin.create_topics([NewTopic("bad", 1, 1, config={"cleanup.policy": "compacted"})])["bad"]
    with pytest.raises(KafkaException):
        refused.result(20)
