"""NOTES"""

from __future__ import annotations

from protocol.fields import Struct, array, int8, int16, int32, int64, message, string, struct


@struct()
class ListOffsetsPartition(Struct):
    """DOC ListOffsetsPartition"""

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, versions="4+", ignorable=True)
    timestamp: int = int64()


@struct()
class ListOffsetsTopic(Struct):
    """DOC ListOffsetsTopic"""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(api_key=2, versions="1-11", flexible="6+", kind="request")
class ListOffsetsRequest(Struct):
    """DOC ListOffsetsRequest"""

    replica_id: int = int32()
    isolation_level: int = int8(versions="2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(versions="10+", ignorable=True)


@struct()
class ListOffsetsPartitionResponse(Struct):
    """DOC ListOffsetsPartitionResponse"""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1, versions="1+")
    offset: int = int64(default=-1, versions="1+")
    leader_epoch: int = int32(default=-1, versions="4+")


@struct()
class ListOffsetsTopicResponse(Struct):
    """DOC ListOffsetsTopicResponse"""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(api_key=2, versions="1-11", flexible="6+", kind="response")
class ListOffsetsResponse(Struct):
    """DOC ListOffsetsResponse"""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
