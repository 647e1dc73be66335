"""Readers of committed records, and partitions' part of transactions, by hand: as Kafka 4.4.0 does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch, with_crc
from compat_tests.test_wire_transactions import Coordinator, Identity

INVALID_TXN_STATE = 48
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
READ_COMMITTED = 1
LATEST, MAX_TIMESTAMP = -1, -3


def transactional(value: bytes, producer: Identity, sequence: int, **more: Any) -> bytes:
    data = bytearray(batch([value], producer=producer, base_sequence=sequence, **more))
    data[22] |= 0x10
    return with_crc(data)


def produce(raw: RawConnection, topic: str, records: bytes, name: str | None = None, version: int = 9) -> int:
    """The error of one batch; `name` is the request's transactional id."""
    parts = [{"index": 0, "records": records}]
    answer = raw.call(
        "produce",
        version,
        acks=-1,
        timeout=10_000,
        transactional_id=name,
        topic_data=[{"name": topic, "partition_data": parts}],
    )
    error: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return error


def fetch(raw: RawConnection, topic: str, offset: int) -> Answer:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    answer = raw.call(
        "fetch",
        12,
        max_wait=0,
        min_bytes=0,
        max_bytes=50 << 20,
        session_epoch=-1,
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    found: Answer = answer["responses"][0]["partitions"][0]
    return found


def aborted(found: Answer) -> list[tuple[int, int]]:
    return [(each["producer_id"], each["first_offset"]) for each in found["aborted_transactions"]]


def offset_of(raw: RawConnection, topic: str, timestamp_ms: int, level: int) -> int:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    answer = raw.call(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=level,
        topics=[{"name": topic, "partitions": [wanted]}],
        timeout=10_000,
    )
    (found,) = answer["topics"][0]["partitions"]
    assert found["error_code"] == 0
    offset: int = found["offset"]
    return offset


@pytest.fixture
def two(raw: RawConnection, unused_name: Callable[[], str]) -> tuple[Coordinator, Coordinator]:
    return Coordinator(raw, unused_name()), Coordinator(raw, unused_name())


def test_what_is_stable_and_what_was_aborted(
    raw: RawConnection, new_topic: NewTopic, two: tuple[Coordinator, Coordinator]
) -> None:
    """0 plain, 1 aborted, 2 plain, 3 open, 4 the marker of 1, 5 plain."""
    topic, (first, second) = new_topic(), two
    newest_ms = int(time.time() * 1000) + 1_800_000  # newer than any marker
    one, other = first.begin(), second.begin()
    for coordinator, identity in ((first, one), (second, other)):
        assert coordinator.add(identity, (topic, 0)) == [0]
    assert produce(raw, topic, batch([b"plain"], timestamp_ms=1_000)) == 0
    assert produce(raw, topic, transactional(b"a", one, 0, timestamp_ms=1_001), first.name) == 0
    assert produce(raw, topic, batch([b"plain"], timestamp_ms=1_002)) == 0
    assert produce(raw, topic, transactional(b"b", other, 0, timestamp_ms=1_003), second.name) == 0
    first.over(one, False)
    assert produce(raw, topic, batch([b"plain"], timestamp_ms=newest_ms)) == 0
    found = fetch(raw, topic, 0)
    assert (found["high_watermark"], found["last_stable_offset"]) == (6, 3)
    assert aborted(found) == [(one[0], 1)]
    for offset in (3, 5, 6):
        found = fetch(raw, topic, offset)
        assert (found["error_code"], found["records"] or b"", aborted(found)) == (0, b"", [])
    assert [offset_of(raw, topic, LATEST, level) for level in (0, 1)] == [6, 3]
    assert [offset_of(raw, topic, 1_002, level) for level in (0, 1)] == [2, 2]
    assert [offset_of(raw, topic, 1_003, level) for level in (0, 1)] == [3, -1]
    assert [offset_of(raw, topic, MAX_TIMESTAMP, level) for level in (0, 1)] == [5, -1]
    second.over(other, False)
    assert aborted(fetch(raw, topic, 0)) == [(one[0], 1), (other[0], 3)]
    assert aborted(fetch(raw, topic, 5)) == [(other[0], 3)]
    assert offset_of(raw, topic, MAX_TIMESTAMP, 1) == 5


def test_batches_that_are_no_part_of_a_transaction(
    raw: RawConnection, new_topic: NewTopic, two: tuple[Coordinator, Coordinator]
) -> None:
    topic, (one, _) = new_topic(), two
    identity = one.begin()
    assert produce(raw, topic, transactional(b"a", identity, 0)) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(raw, topic, transactional(b"a", identity, 0), one.name) == INVALID_TXN_STATE
    assert one.add(identity, (topic, 0)) == [0]
    assert produce(raw, topic, transactional(b"a", identity, 0), one.name) == 0
    plain = batch([b"b"], producer=identity, base_sequence=1)
    assert produce(raw, topic, plain, one.name) == INVALID_TXN_STATE
    assert produce(raw, topic, transactional(b"b", identity, 1), one.name) == 0
    one.over(identity, True)
    assert produce(raw, topic, transactional(b"c", identity, 2), one.name) == INVALID_TXN_STATE
    assert produce(raw, topic, batch([b"c"], producer=identity, base_sequence=2)) == 0


def test_producers_of_a_partition(
    raw: RawConnection, new_topic: NewTopic, two: tuple[Coordinator, Coordinator]
) -> None:
    topic, (one, _) = new_topic(), two
    identity = one.begin()

    def described() -> tuple[int, ...]:
        answer = raw.call("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
        (found,) = answer["topics"][0]["partitions"][0]["active_producers"]
        return found["producer_epoch"], found["last_sequence"], found["current_txn_start_offset"]

    assert one.add(identity, (topic, 0)) == [0]
    assert produce(raw, topic, batch([b"plain"])) == 0
    assert produce(raw, topic, transactional(b"a", identity, 0), one.name) == 0
    assert described() == (0, 0, 1)
    one.over(identity, True)
    assert described() == (0, 0, -1)
    assert one.add(identity, (topic, 0)) == [0]
    assert produce(raw, topic, transactional(b"b", identity, 1), one.name) == 0
    assert one.begin()[1] > 0  # aborts it, with a marker of a higher epoch
    epoch, sequence, start = described()
    assert (epoch > 0, sequence, start) == (True, -1, -1)
