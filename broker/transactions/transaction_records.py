"""A transactional id's records in `__transaction_state`, and their content as objects.

Owns: `TransactionState`, `TransactionMetadata`, and the way to and from a record's key and value.
Invariants: values are written in version 1 as by Kafka 4.4.0, plus the producer's last epoch as a tagged
field, which other readers skip; both versions that Kafka ever wrote are read.
Source: Kafka's TransactionLog and TransactionState.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from lockstep.protocol.compiler import decode
from lockstep.protocol.coordinator_records import key_bytes, value_bytes
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.transaction_records import (
    TRANSACTION_LOG,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

Record = tuple[bytes, bytes | None]
"""Key and value; without a value the transactional id is removed."""
TopicPartition = tuple[str, int]
"""A topic's name and a partition's index."""

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
VALUE_VERSION: Final = 1


class UnknownTransactionRecord(Exception):
    """A key or a value of a kind or version that is not known here: to be passed over."""


class TransactionState(IntEnum):
    """The state of an id, with Kafka's numbers. DEAD and PREPARE_EPOCH_FENCE are never recorded."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name in Kafka's tools: PrepareCommit."""
        return self.name.title().replace("_", "")


RECORDED: Final = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""Decided, and without a marker in some partition."""


class TransactionMetadata(NamedTuple):
    """The committed state of one id's transactions."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    """In the order in which they were added."""
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: a retry after the epochs ran out still names it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from the end of this transaction on, where its epochs ran out with it."""
    version: int = 0
    """The client's transaction version."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last raise: a producer that did not get that response still sends it."""


# --- to records -------------------------------------------------------------------------------------------


def record(transactional_id: str, metadata: TransactionMetadata | None) -> Record:
    """Returns the record of an id's state; None: a tombstone."""
    key = key_bytes(TransactionLogKey(transactional_id=transactional_id))
    if metadata is None:
        return key, None
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=(
            None if metadata.state is TransactionState.EMPTY else _by_topic(metadata.partitions)
        ),
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.version,
        last_producer_epoch=metadata.last_producer_epoch,
    )
    return key, value_bytes(value, VALUE_VERSION)


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, index in partitions:
        found = topics.get(topic)
        if found is None:
            found = topics[topic] = PartitionsSchema(topic=topic, partition_ids=[])
        found.partition_ids.append(index)
    return list(topics.values())


# --- from records -----------------------------------------------------------------------------------------


def transactional_id(key: bytes | None) -> str:
    """Returns the id of a record. Raises MalformedMessage, UnknownTransactionRecord."""
    if key is None or len(key) < 2:
        raise MalformedMessage("a record without a key")
    kind = int.from_bytes(key[:2], "big")
    if kind != TRANSACTION_LOG:
        raise UnknownTransactionRecord(f"a key of kind {kind}")
    return decode(TransactionLogKey, 0, key, 2).transactional_id


def transaction_metadata(value: bytes) -> TransactionMetadata:
    """Raises MalformedMessage, UnknownTransactionRecord."""
    if len(value) < 2:
        raise MalformedMessage("a value without a version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= VALUE_VERSION:
        raise UnknownTransactionRecord(f"a value of version {version}; known up to {VALUE_VERSION}")
    read = decode(TransactionLogValue, version, value, 2)
    if read.transaction_status not in RECORDED:
        raise UnknownTransactionRecord(f"a transaction in state {read.transaction_status}")
    return TransactionMetadata(
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        TransactionState(read.transaction_status),
        tuple(
            (each.topic, index) for each in read.transaction_partitions or () for index in each.partition_ids
        ),
        read.transaction_start_timestamp_ms,
        read.transaction_last_update_timestamp_ms,
        read.previous_producer_id,
        read.next_producer_id,
        read.client_transaction_version,
        read.last_producer_epoch,
    )
