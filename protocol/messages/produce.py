"""Produce (0): batches of records to append.

Versions: 3 record batches v2 and the transactional id (KIP-98); 4 storage errors; 5 log start offset
(KIP-107); 6 throttling is the client's duty (KIP-219); 7 zstd allowed (KIP-110); 8 record errors and a
message (KIP-467); 9 flexible; 10 the present leader in the response (KIP-951); 11 TRANSACTION_ABORTABLE
(KIP-890); 12 partitions join their transaction without being added first (KIP-890 part 2); 13 topic ids
in place of names (KIP-516).

Kafka advertises versions 0 to 2 and rejects them, because some clients conclude from them which codecs
they may use (KAFKA-18659).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    int16,
    int32,
    int64,
    message,
    record_data,
    string,
    struct,
    struct_field,
    uuid,
)
from lockstep.protocol.primitives import Buffer


@struct()
class PartitionProduceData(Struct):
    """The batches for one partition; one batch from every client in use."""

    index: int = int32()
    records: Buffer | None = record_data(nullable="0+")


@struct()
class TopicProduceData(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(api_key=0, versions="3-13", flexible="9+", kind="request")
class ProduceRequest(Struct):
    """Batches to append, and how many replicas must have them before the response."""

    transactional_id: str | None = string(default=None, versions="3+", nullable="3+")
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct()
class BatchIndexAndErrorMessage(Struct):
    """A record that spoiled its batch."""

    batch_index: int = int32(versions="8+")
    batch_index_error_message: str | None = string(default=None, versions="8+", nullable="8+")


@struct()
class LeaderIdAndEpoch(Struct):
    """The current leader."""

    leader_id: int = int32(default=-1, versions="10+")
    leader_epoch: int = int32(default=-1, versions="10+")


@struct()
class PartitionProduceResponse(Struct):
    """The base offset of one partition's batches, or the error."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1, versions="2+", ignorable=True)
    log_start_offset: int = int64(default=-1, versions="5+", ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, versions="8+", ignorable=True
    )
    error_message: str | None = string(default=None, versions="8+", nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = struct_field(LeaderIdAndEpoch, versions="10+", tagged="10+", tag=0)


@struct()
class TopicProduceResponse(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct()
class NodeEndpoint(Struct):
    """The address of a leader named in the response."""

    node_id: int = int32(versions="10+")
    host: str = string(versions="10+")
    port: int = int32(versions="10+")
    rack: str | None = string(default=None, versions="10+", nullable="10+")


@message(api_key=0, versions="3-13", flexible="9+", kind="response")
class ProduceResponse(Struct):
    """A result for each partition; not sent when acks is 0."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="10+", tagged="10+", tag=0)
