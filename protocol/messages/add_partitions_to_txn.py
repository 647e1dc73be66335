"""AddPartitionsToTxn (24): partitions a transaction is about to write to.

Versions: 1 throttling is the client's duty (KIP-219); 2 PRODUCER_FENCED (KIP-588); 3 flexible, and the last
that clients send; 4 is for brokers: several transactions in one request, which may be verified only
(KIP-890); 5 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, int64, message, string, struct


@struct()
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct()
class AddPartitionsToTxnTransaction(Struct):
    """One transaction, and what to add to it or to look for in it."""

    transactional_id: str = string(versions="4+")
    producer_id: int = int64(versions="4+")
    producer_epoch: int = int16(versions="4+")
    verify_only: bool = boolean(versions="4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, versions="4+")


@message(api_key=24, versions="0-5", flexible="3+", kind="request")
class AddPartitionsToTxnRequest(Struct):
    """One transaction of a client, or a broker's many."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, versions="4+")
    v3_and_below_transactional_id: str = string(versions="0-3")
    v3_and_below_producer_id: int = int64(versions="0-3")
    v3_and_below_producer_epoch: int = int16(versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, versions="0-3")


@struct()
class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@struct()
class AddPartitionsToTxnTopicResult(Struct):
    """The partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@struct()
class AddPartitionsToTxnResult(Struct):
    """The topics of one transaction."""

    transactional_id: str = string(versions="4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, versions="4+")


@message(api_key=24, versions="0-5", flexible="3+", kind="response")
class AddPartitionsToTxnResponse(Struct):
    """A result for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, versions="0-3"
    )
