"""Transactional batches and markers by hand: what a partition takes and refuses, in each version's words.

Expected is what Kafka 4.4.0 does. Versions: 11 knows TRANSACTION_ABORTABLE, 12 adds the partition (KIP-890).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection, batch, with_crc

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
TRANSACTION_COORDINATOR_FENCED = 52
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
INVALID_RECORD = 87
TRANSACTION_ABORTABLE = 120
UNKNOWN_SERVER_ERROR = -1
BUSY = frozenset({14, 15, 16, 19, 51})
"""Asked again, as clients do."""
AREA = "Transactions on the wire"

Identity = tuple[int, int]


def _transactional(values: list[bytes | None], producer: Identity, base_sequence: int) -> bytes:
    data = bytearray(batch(values, producer=producer, base_sequence=base_sequence))
    (attributes,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, attributes | 0x10)
    return with_crc(data)


class Producer:
    """One transactional id and a topic of three partitions."""

    def __init__(self, raw: RawConnection, name: str, topic: str) -> None:
        self.raw = raw
        self.name = name
        self.topic = topic
        self.producer: Identity = (-1, -1)
        told = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        made = self.asked(
            lambda: raw.call("init_producer_id", 4, transactional_id=name, **told),
            lambda answer: {answer["error_code"]},
        )
        self.producer = made["producer_id"], made["producer_epoch"]

    def asked(self, ask: Callable[[], Answer], errors: Callable[[Answer], set[int]]) -> Answer:
        for _ in range(200):
            found = self.raw.call("find_coordinator", 4, key_type=1, coordinator_keys=(self.name,))
            if found["coordinators"][0]["error_code"] == NONE:
                answer = ask()
                if not errors(answer) & BUSY:
                    return answer
            time.sleep(0.02)
        raise AssertionError(f"still busy: {found}")

    def add(self, *partitions: int) -> None:
        def errors(answer: Answer) -> set[int]:
            (told,) = answer["results_by_topic_v3_and_below"]
            return {each["partition_error_code"] for each in told["results_by_partition"]}

        answer = self.asked(
            lambda: self.raw.call(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=[{"name": self.topic, "partitions": partitions}],
            ),
            errors,
        )
        assert errors(answer) == {NONE}

    def send(
        self, parts: dict[int, bytes], *, version: int = 11, name: str | None = "", acks: int = -1
    ) -> dict[int, int]:
        """Error by partition. `name`: another transactional id, or None for none."""
        wanted = [{"index": index, "records": data} for index, data in parts.items()]

        def ask() -> Answer:
            return self.raw.call(
                "produce",
                version,
                acks=acks,
                timeout=10_000,
                transactional_id=self.name if name == "" else name,
                topic_data=[{"name": self.topic, "partition_data": wanted}],
            )

        def errors(answer: Answer) -> dict[int, int]:
            return {
                part["index"]: part["error_code"]
                for topic in answer["responses"]
                for part in topic["partition_responses"]
            }

        return errors(self.asked(ask, lambda answer: set(errors(answer).values())))

    def one(self, partition: int, sequence: int, *, producer: Identity | None = None, **more: Any) -> int:
        data = _transactional([b"value"], producer or self.producer, sequence)
        return self.send({partition: data}, **more)[partition]

    def end(self, commit: bool, ends: dict[int, int]) -> None:
        """Commit or abort; wait until partitions have come to end there."""
        answer = self.asked(
            lambda: self.raw.call(
                "end_txn",
                4,
                transactional_id=self.name,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                committed=commit,
            ),
            lambda answer: {answer["error_code"]},
        )
        assert answer["error_code"] == NONE
        for partition, offset in ends.items():
            until = time.monotonic() + 10
            while (found := self.end_of(partition)) != offset:
                assert time.monotonic() < until, (partition, found)
                time.sleep(0.02)

    def end_of(self, partition: int) -> int:
        return int(self.raw.list_offset(self.topic, -1, partition=partition)["offset"])

    def _leader_of(self, partition: int) -> RawConnection:
        """A connection to a partition's leader, which nobody else is asked through."""
        leader = self.raw.leader_of(self.topic, partition)
        brokers = self.raw.call("metadata", 12, topics=[])["brokers"]
        (found,) = [each for each in brokers if each["node_id"] == leader]
        return RawConnection(found["host"], found["port"])

    def marked(self, *partitions: int, topic: str | None = None, **marker: Any) -> dict[int, int]:
        """Error by partition of a marker; an abort by coordinator 0 unless told otherwise."""
        whole = {
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic or self.topic, "partition_indexes": partitions}],
        }
        with self._leader_of(partitions[0]) as leader:
            answer = leader.call("write_txn_markers", 1, markers=[whole | marker])
        (told,) = answer["markers"]
        assert told["producer_id"] == (whole | marker)["producer_id"]
        return {
            each["partition_index"]: each["error_code"]
            for found in told["topics"]
            for each in found["partitions"]
        }


@pytest.fixture
def producer(raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str]) -> Producer:
    return Producer(raw, unused_name(), new_topic(partitions=3))


@pytest.mark.case(AREA, "a batch of no transaction is refused, v{version}")
@pytest.mark.parametrize("version", [3, 9, 10, 11])
def test_no_transaction(producer: Producer, version: int) -> None:
    wanted = TRANSACTION_ABORTABLE if version >= 11 else INVALID_TXN_STATE
    assert producer.one(0, 0, version=version) == wanted
    producer.add(1)
    sent = {index: _transactional([b"value"], producer.producer, 0) for index in range(3)}
    assert producer.send(sent, version=version) == {0: wanted, 1: NONE, 2: wanted}
    assert [producer.end_of(index) for index in range(3)] == [0, 1, 0]


@pytest.mark.case(AREA, "a batch after the end of its transaction is refused ({end})")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_late(producer: Producer, end: str) -> None:
    producer.add(0, 1)
    assert producer.one(0, 0) == NONE
    producer.end(end == "commit", {0: 2, 1: 1})
    for partition, sequence in ((0, 1), (1, 0)):
        assert producer.one(partition, sequence, version=9) == INVALID_TXN_STATE
        assert producer.one(partition, sequence, version=11) == TRANSACTION_ABORTABLE
    assert [producer.end_of(index) for index in range(2)] == [2, 1]


@pytest.mark.case(AREA, "an aborted batch's number, used again in its epoch, stores nothing and is no error")
def test_a_number_used_again(producer: Producer) -> None:
    """What an application with librdkafka meets that goes on after an abort (decision 20)."""
    producer.add(0)
    assert producer.one(0, 0) == NONE
    producer.end(False, {0: 2})
    producer.add(0)
    assert producer.one(0, 0) == NONE
    assert producer.end_of(0) == 2


@pytest.mark.case(AREA, "Who is not known begins with sequence 0 since Produce 12")
def test_first_sequences(producer: Producer) -> None:
    assert producer.one(0, 5, version=12) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.one(0, 0, version=12) == NONE
    assert producer.one(0, 1, version=12) == NONE
    producer.add(1)
    assert producer.one(1, 5, version=11) == NONE
    assert [producer.end_of(index) for index in range(2)] == [2, 1]


@pytest.mark.case(AREA, "Produce 12 adds its partition to the transaction")
def test_adding(producer: Producer) -> None:
    assert producer.one(0, 0, version=12) == NONE
    assert producer.one(0, 1, version=12) == NONE
    producer.end(False, {0: 3})


@pytest.mark.case(AREA, "a batch of another producer, epoch or transactional id is refused")
def test_whose(producer: Producer) -> None:
    producer_id, epoch = producer.producer
    producer.add(0)
    assert producer.one(0, 0, producer=(producer_id + 100_000, 0)) == INVALID_PRODUCER_ID_MAPPING
    assert producer.one(0, 0, producer=(producer_id, epoch + 1)) == INVALID_PRODUCER_EPOCH
    assert producer.one(0, 0, name=None) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.end_of(0) == 0


@pytest.mark.case(AREA, "batches of no transaction in a request of one; acks=1 and acks=0")
def test_mixed(producer: Producer) -> None:
    producer.add(0)
    plain = batch([b"plain"], producer=producer.producer, base_sequence=0)
    assert producer.send({1: plain, 2: batch([b"nobody's"])}) == {1: NONE, 2: NONE}
    assert producer.one(0, 0, acks=1) == NONE
    within = batch([b"plain"], producer=producer.producer, base_sequence=1)
    assert producer.send({0: within}) == {0: INVALID_TXN_STATE}
    assert producer.send({1: b"short"}) == {1: INVALID_RECORD}
    wanted = {"index": 0, "records": _transactional([b"value"], producer.producer, 1)}
    producer.raw.send(
        "produce",
        11,
        answered=False,
        acks=0,
        timeout=10_000,
        transactional_id=producer.name,
        topic_data=[{"name": producer.topic, "partition_data": [wanted]}],
    )
    producer.end(True, {0: 3})


@pytest.mark.case(
    AREA, "WriteTxnMarkers: epochs and coordinators that are old, partitions that are not there"
)
def test_markers(producer: Producer) -> None:
    producer_id, epoch = producer.producer
    producer.add(0, 1)
    assert producer.one(0, 0) == NONE
    assert producer.marked(0, 7) == {0: NONE, 7: UNKNOWN_TOPIC_OR_PARTITION}
    assert producer.marked(0, topic="nobody's") == {0: UNKNOWN_TOPIC_OR_PARTITION}
    assert producer.end_of(0) == 2
    assert producer.marked(1, coordinator_epoch=5, producer_epoch=epoch + 9) == {1: NONE}
    assert producer.marked(1, coordinator_epoch=4, producer_epoch=epoch + 9) == {
        1: TRANSACTION_COORDINATOR_FENCED
    }
    assert producer.marked(1, coordinator_epoch=5) == {1: INVALID_PRODUCER_EPOCH}
    assert producer.marked(2, producer_id=producer_id + 100_000) == {2: NONE}
    assert producer.marked(2, 7, producer_epoch=-1) == {2: UNKNOWN_SERVER_ERROR, 7: UNKNOWN_SERVER_ERROR}
    assert producer.marked(2, producer_id=-1, producer_epoch=-1) == {2: UNKNOWN_SERVER_ERROR}
    nothing = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    assert producer.raw.call("write_txn_markers", 1, markers=[nothing | {"topics": []}])["markers"] == []
