"""What a producer hears that goes on after the broker aborted its transaction (transaction.timeout.ms).

Every request of a transactional producer, in the last version of transactions V1 and in the first of V2.
Expected is what Kafka 4.4.0 answers, but for a late commit of V2: KAFKA-20785 (docs/decisions/0037).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import RawConnection
from compat_tests.targets import Target
from compat_tests.test_wire_transactions import Coordinator, Identity
from compat_tests.test_wire_txn_offsets import _patiently
from compat_tests.test_wire_txn_produce import _transactional

AREA = "A transaction that the broker has aborted"
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
PRODUCER_FENCED = 90
TIMEOUT_MS = 2_000
GROUP, GROUP_ID = 0, "after-a-time-out"


class TimedOut:
    """A producer whose first transaction, over one partition and a group's offsets, was aborted."""

    def __init__(self, raw: RawConnection, name: str, topic: str) -> None:
        self.raw, self.topic = raw, topic
        self.coordinator = Coordinator(raw, name)
        self.identity: Identity = self.coordinator.begin(timeout_ms=TIMEOUT_MS)
        _patiently(raw, "find_coordinator", 3, key=GROUP_ID, key_type=GROUP)
        assert self.coordinator.add(self.identity, (topic, 0)) == [0]
        assert self.add_offsets(3) == 0
        assert self.produce(0, 11) == 0
        assert self.commit_offsets(4) == 0
        until = time.monotonic() + 30
        while self.coordinator.describe().transaction_state != "CompleteAbort":
            assert time.monotonic() < until, self.coordinator.describe()
            time.sleep(0.05)

    def add_offsets(self, version: int) -> int:
        answer = _patiently(
            self.raw,
            "add_offsets_to_txn",
            version,
            transactional_id=self.coordinator.name,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            group_id=GROUP_ID,
        )
        return int(answer["error_code"])

    def commit_offsets(self, version: int) -> int:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None} if version >= 3 else {}
        answer = _patiently(
            self.raw,
            "txn_offset_commit",
            version,
            transactional_id=self.coordinator.name,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            group_id=GROUP_ID,
            topics=[{"name": self.topic, "partitions": [part]}],
            **member,
        )
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def produce(self, partition: int, version: int, sequence: int = 0) -> int:
        data = _transactional([b"value"], self.identity, sequence)
        answer = self.raw.call(
            "produce",
            version,
            acks=-1,
            timeout=10_000,
            transactional_id=self.coordinator.name,
            topic_data=[{"name": self.topic, "partition_data": [{"index": partition, "records": data}]}],
        )
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    def add(self, version: int) -> int:
        (found,) = self.coordinator.add(self.identity, (self.topic, 1), version=version)
        return found

    def batched(self, *, verify: bool) -> int:
        (found,) = self.coordinator.batched(self.identity, (self.topic, 0), verify=verify)
        return found

    def end(self, commit: bool, version: int) -> int:
        return self.coordinator.end(self.identity, commit, version=version)[0]


@pytest.fixture
def late(raw: RawConnection, unused_name: Callable[[], str], new_topic: NewTopic) -> TimedOut:
    return TimedOut(raw, unused_name(), new_topic(partitions=2))


@pytest.mark.case(AREA, "every request of its producer, in the versions of both kinds of transactions")
def test_every_late_request_of_a_producer(late: TimedOut, target: Target) -> None:
    heard = {
        "AddPartitionsToTxn 1": late.add(1),
        "AddPartitionsToTxn 3": late.add(3),
        "AddPartitionsToTxn 4, to add": late.batched(verify=False),
        "AddPartitionsToTxn 4, to verify": late.batched(verify=True),
        "AddOffsetsToTxn 1": late.add_offsets(1),
        "AddOffsetsToTxn 3": late.add_offsets(3),
        "AddOffsetsToTxn 4": late.add_offsets(4),
        "TxnOffsetCommit 2": late.commit_offsets(2),
        "TxnOffsetCommit 4": late.commit_offsets(4),
        "TxnOffsetCommit 5": late.commit_offsets(5),
        "Produce 9": late.produce(0, 9, 1),
        "Produce 11": late.produce(0, 11, 1),
        "Produce 12": late.produce(0, 12, 1),
        "Produce 11, another partition": late.produce(1, 11),
        "Produce 12, another partition": late.produce(1, 12),
        "EndTxn 1, commit": late.end(True, 1),
        "EndTxn 4, commit": late.end(True, 4),
        "EndTxn 4, abort": late.end(False, 4),
        "EndTxn 5, commit": late.end(True, 5),
    }
    is_kafka = target.name.startswith("kafka")
    assert heard == {
        "AddPartitionsToTxn 1": INVALID_PRODUCER_EPOCH,
        "AddPartitionsToTxn 3": PRODUCER_FENCED,
        "AddPartitionsToTxn 4, to add": PRODUCER_FENCED,
        "AddPartitionsToTxn 4, to verify": PRODUCER_FENCED,
        "AddOffsetsToTxn 1": INVALID_PRODUCER_EPOCH,
        "AddOffsetsToTxn 3": PRODUCER_FENCED,
        "AddOffsetsToTxn 4": PRODUCER_FENCED,
        "TxnOffsetCommit 2": INVALID_PRODUCER_EPOCH,
        "TxnOffsetCommit 4": INVALID_PRODUCER_EPOCH,
        "TxnOffsetCommit 5": INVALID_PRODUCER_EPOCH,
        "Produce 9": INVALID_PRODUCER_EPOCH,
        "Produce 11": INVALID_PRODUCER_EPOCH,
        "Produce 12": INVALID_PRODUCER_EPOCH,
        "Produce 11, another partition": INVALID_PRODUCER_EPOCH,
        "Produce 12, another partition": INVALID_PRODUCER_EPOCH,
        "EndTxn 1, commit": INVALID_PRODUCER_EPOCH,
        "EndTxn 4, commit": PRODUCER_FENCED,
        "EndTxn 4, abort": PRODUCER_FENCED,
        "EndTxn 5, commit": INVALID_TXN_STATE if is_kafka else PRODUCER_FENCED,
    }


@pytest.mark.case(AREA, "an abort of version 5 is answered with the next epoch, which goes on")
def test_a_late_abort_goes_on_with_the_next_epoch(late: TimedOut) -> None:
    producer_id, epoch = late.identity
    for _ in range(2):
        assert late.coordinator.end(late.identity, False, version=5) == (0, (producer_id, epoch + 1))
    late.identity = producer_id, epoch + 1
    assert late.produce(0, 12) == 0
    assert late.end(True, 5) == 0


@pytest.mark.case(
    AREA, "InitProducerId of the same producer is answered with the next epoch, as often as asked"
)
def test_a_producer_that_was_aborted_may_begin_again(late: TimedOut) -> None:
    producer_id, epoch = late.identity
    for _ in range(2):
        assert late.coordinator.init(late.identity) == (0, producer_id, epoch + 1)
    late.identity = producer_id, epoch + 1
    assert late.produce(0, 12) == 0
    assert late.end(True, 5) == 0
