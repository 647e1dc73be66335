"""The records of `__transaction_state`: key and value as Kafka's transaction coordinator writes them.

A key begins with its kind (two bytes, 0), a value with its version, as in `coordinator_records.py`, whose
`key_bytes` and `value_bytes` put them there.

Source: the definitions in Kafka's transaction-coordinator.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.fields import Struct, array, int8, int16, int32, int64, message, string, struct

TRANSACTION_LOG: Final = 0


@message(api_key=TRANSACTION_LOG, versions="0", flexible="none", kind="coordinator-key")
class TransactionLogKey(Struct):
    """The transactional id."""

    transactional_id: str = string(versions="0")


@struct()
class PartitionsSchema(Struct):
    """The partitions of one topic in the transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


@message(api_key=TRANSACTION_LOG, versions="0-1", flexible="1+", kind="coordinator-value")
class TransactionLogValue(Struct):
    """The state of one id's transactions. Version 1 (flexible) adds the fields of KIP-890 and KIP-939.

    Tag 4 is ours: Kafka 4.4.0 does not write the epoch before the last raise (KAFKA-20357).
    """

    producer_id: int = int64()
    previous_producer_id: int = int64(default=-1, versions="1+", tagged="1+", tag=0)
    next_producer_id: int = int64(default=-1, versions="1+", tagged="1+", tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(default=-1, versions="1+", tagged="1+", tag=3)
    last_producer_epoch: int = int16(default=-1, versions="1+", tagged="1+", tag=4)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(default=0, versions="1+", tagged="1+", tag=2)
