"""DescribeTopicPartitions (75): topics by name, a page at a time (KIP-966).

The lists of eligible leaders may be null on the wire, but Java's admin client and Kafka's tools read them
without looking: return lists.
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    struct_field,
    uuid,
)


@struct()
class TopicRequest(Struct):
    """One topic by name."""

    name: str = string()


@struct()
class Cursor(Struct):
    """The first partition of the page that follows."""

    topic_name: str = string()
    partition_index: int = int32()


@message(api_key=75, versions="0", flexible="0+", kind="request")
class DescribeTopicPartitionsRequest(Struct):
    """Topics to describe; none is all."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct_field(Cursor, default=None, nullable="0+")


@struct()
class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition and its replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, default=None, nullable="0+")
    last_known_elr: list[int] | None = array(int32, default=None, nullable="0+")
    offline_replicas: list[int] = array(int32, ignorable=True)


@struct()
class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic and its partitions of this page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


@message(api_key=75, versions="0", flexible="0+", kind="response")
class DescribeTopicPartitionsResponse(Struct):
    """One page."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct_field(Cursor, default=None, nullable="0+")
