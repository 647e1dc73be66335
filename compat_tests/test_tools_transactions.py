"""kafka-transactions, unchanged: what is open and where, what hangs, the way to end it (KIP-664)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.java_driver import ToolResult
from compat_tests.raw import Answer, RawConnection, batch, raw_connection, with_crc
from compat_tests.targets import Target

Tool = Callable[..., ToolResult]
_MAIN = "org.apache.kafka.tools.TransactionsCommand"
_TRANSACTIONAL = 0x10
_ATTRIBUTES_AT = 21
_BUSY = frozenset({14, 15, 16, 51})
"""Loading, no coordinator yet, not this one, busy: asked again."""
_TIMEOUT_MS = 600_000


def _rows(result: ToolResult) -> list[dict[str, str]]:
    """A table that the tool printed, by its head."""
    assert result.status == 0, result.stdout + result.stderr
    head, *lines = [line.split("\t") for line in result.stdout.splitlines() if line.strip()]
    names = [each.strip() for each in head]
    return [dict(zip(names, (each.strip() for each in line), strict=False)) for line in lines]


class _Transaction:
    """A producer by hand, whose transaction takes in partitions of one topic."""

    def __init__(self, raw: RawConnection, name: str, topic: str) -> None:
        self._raw = raw
        self.name = name
        self.topic = topic
        whole = {"transaction_timeout": _TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        made = self._ask("init_producer_id", 4, transactional_id=name, **whole)
        self.producer = made["producer_id"], made["producer_epoch"]

    def _ask(self, api: str, api_version: int, **fields: Any) -> Answer:
        until = time.monotonic() + 20
        while True:
            found = self._raw.call("find_coordinator", 4, key_type=1, coordinator_keys=(self.name,))
            if found["coordinators"][0]["error_code"] == 0:
                answer = self._raw.call(api, api_version, **fields)
                if answer.get("error_code", 0) not in _BUSY:
                    return answer
            assert time.monotonic() < until, f"{api} of {self.name}: still {found}"
            time.sleep(0.05)

    def open(self, *partitions: int) -> None:
        """Write a record to each."""
        producer_id, epoch = self.producer
        added: set[int] = set()
        until = time.monotonic() + 20
        while not added or (added & _BUSY and time.monotonic() < until):
            answer = self._ask(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[{"name": self.topic, "partitions": partitions}],
            )
            (told,) = answer["results_by_topic_v3_and_below"]
            added = {each["partition_error_code"] for each in told["results_by_partition"]}
        assert added == {0}
        data = bytearray(batch([b"open"], producer=self.producer, base_sequence=0))
        (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
        struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | _TRANSACTIONAL)
        parts = [{"index": each, "records": with_crc(data)} for each in partitions]
        answer = self._raw.call(
            "produce",
            11,
            acks=-1,
            timeout=10_000,
            transactional_id=self.name,
            topic_data=[{"name": self.topic, "partition_data": parts}],
        )
        errors = [part["error_code"] for told in answer["responses"] for part in told["partition_responses"]]
        assert errors == [0] * len(partitions)

    def end(self, committed: bool) -> int:
        """The error code."""
        producer_id, epoch = self.producer
        whose = {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}
        return int(self._ask("end_txn", 4, committed=committed, **whose)["error_code"])


@pytest.fixture
def transaction(
    target: Target, new_topic: NewTopic, unused_name: Callable[[], str], home: int
) -> Iterator[_Transaction]:
    """Open in both partitions of a topic."""
    topic = new_topic(partitions=2)
    with raw_connection(target.bootstrap, home=home) as raw:
        made = _Transaction(raw, "tools-" + unused_name(), topic)
        made.open(0, 1)
        yield made


@pytest.mark.case("Kafka's tools", "kafka-transactions: list, describe, find-hanging")
def test_looking(tool: Tool, transaction: _Transaction) -> None:
    producer_id, epoch = transaction.producer
    listed = {each["TransactionalId"]: each for each in _rows(tool(_MAIN, "list"))}
    assert listed[transaction.name]["ProducerId"] == str(producer_id)
    assert listed[transaction.name]["TransactionState"] == "Ongoing"
    (told,) = _rows(tool(_MAIN, "describe", "--transactional-id", transaction.name))
    assert told["CoordinatorId"] == listed[transaction.name]["Coordinator"]
    assert (told["ProducerId"], told["ProducerEpoch"]) == (str(producer_id), str(epoch))
    assert (told["TransactionState"], told["TransactionTimeoutMs"]) == ("Ongoing", str(_TIMEOUT_MS))
    assert set(told["TopicPartitions"].split(",")) == {f"{transaction.topic}-0", f"{transaction.topic}-1"}
    hanging = tool(_MAIN, "find-hanging", "--topic", transaction.topic, "--max-transaction-timeout", "0")
    assert _rows(hanging) == [], "its coordinator knows of it"
    assert transaction.end(True) == 0
    unknown = tool(_MAIN, "describe", "--transactional-id", "tools-nobody")
    assert unknown.status == 1 and "could not be found" in unknown.stdout + unknown.stderr


@pytest.mark.case("Kafka's tools", "kafka-transactions: describe-producers, abort by offset and by producer")
def test_aborting(tool: Tool, transaction: _Transaction, raw: RawConnection) -> None:
    topic, (producer_id, epoch) = transaction.topic, transaction.producer

    def producer(partition: int) -> dict[str, str]:
        where = ("--topic", topic, "--partition", str(partition))
        (found,) = _rows(tool(_MAIN, "describe-producers", *where))
        assert found["ProducerId"] == str(producer_id)
        return found

    known = producer(0)
    assert (known["CurrentTransactionStartOffset"], known["LatestCoordinatorEpoch"]) == ("0", "-1")
    assert (known["ProducerEpoch"], known["LastSequence"]) == (str(epoch), "0")
    by_offset = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    done = tool(_MAIN, "abort", *by_offset)
    assert done.status == 0, done.stdout + done.stderr
    known = producer(0)
    assert (known["CurrentTransactionStartOffset"], known["LatestCoordinatorEpoch"]) == ("None", "0")
    again = tool(_MAIN, "abort", *by_offset)
    assert again.status == 1 and "Could not find any open transactions" in again.stdout + again.stderr
    whose = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch), "--coordinator-epoch", "0")
    done = tool(_MAIN, "abort", "--topic", topic, "--partition", "1", *whose)
    assert done.status == 0, done.stdout + done.stderr
    assert producer(1)["CurrentTransactionStartOffset"] == "None"
    assert [raw.list_offset(topic, -1, partition=each)["offset"] for each in range(2)] == [2, 2]
