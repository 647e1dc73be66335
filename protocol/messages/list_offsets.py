"""ListOffsets (2): the offset of a time, or of one of the ends.

Timestamps below zero stand for ends: -1 the end, -2 the start, -3 the largest timestamp, -4 the start of
what is local, -5 the end of what is tiered, -6 what is not yet tiered.

Versions: 1 one offset with its timestamp (KIP-79); 2 isolation level (KIP-98); 3 throttling is the
client's duty (KIP-219); 4 leader epochs (KIP-320); 5 OFFSET_NOT_AVAILABLE (KIP-207); 6 flexible; 7 -3
(KIP-734); 8 -4 (KIP-405); 9 -5 (KIP-1005); 10 a timeout, for tiered storage (KIP-1075); 11 -6 (KIP-1023).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, int64, message, string, struct


@struct()
class ListOffsetsPartition(Struct):
    """The requested time in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, versions="4+", ignorable=True)
    timestamp: int = int64()


@struct()
class ListOffsetsTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(api_key=2, versions="1-11", flexible="6+", kind="request")
class ListOffsetsRequest(Struct):
    """Times to look up."""

    replica_id: int = int32()
    isolation_level: int = int8(versions="2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(versions="10+", ignorable=True)


@struct()
class ListOffsetsPartitionResponse(Struct):
    """The offset found; -1 when no record is that late."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1, versions="1+")
    offset: int = int64(default=-1, versions="1+")
    leader_epoch: int = int32(default=-1, versions="4+")


@struct()
class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(api_key=2, versions="1-11", flexible="6+", kind="response")
class ListOffsetsResponse(Struct):
    """The offsets."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
