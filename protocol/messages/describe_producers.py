"""DescribeProducers (61): who writes to a partition with a producer id (KIP-664)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@struct()
class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(api_key=61, versions="0", flexible="0+", kind="request")
class DescribeProducersRequest(Struct):
    """The requested partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


@struct()
class ProducerState(Struct):
    """One producer, as the partition remembers it."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct()
class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState)


@struct()
class TopicResponse(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message(api_key=61, versions="0", flexible="0+", kind="response")
class DescribeProducersResponse(Struct):
    """A result for each requested partition."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
