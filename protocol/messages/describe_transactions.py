"""DescribeTransactions (65): the state of transactions by id (KIP-664)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@message(api_key=65, versions="0", flexible="0+", kind="request")
class DescribeTransactionsRequest(Struct):
    """Transactional ids."""

    transactional_ids: list[str] = array(string)


@struct()
class TopicData(Struct):
    """Partitions of one topic that take part."""

    topic: str = string()
    partitions: list[int] = array(int32)


@struct()
class TransactionState(Struct):
    """One transaction, or why nothing is known of it."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(api_key=65, versions="0", flexible="0+", kind="response")
class DescribeTransactionsResponse(Struct):
    """A result for each requested id."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
