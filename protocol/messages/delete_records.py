"""DeleteRecords (21): a partition's records below an offset go (KIP-107).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible. Offset -1 is the high watermark.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@struct()
class DeleteRecordsPartition(Struct):
    """The first offset of one partition that is kept."""

    partition_index: int = int32()
    offset: int = int64()


@struct()
class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(api_key=21, versions="0-2", flexible="2+", kind="request")
class DeleteRecordsRequest(Struct):
    """Records to delete."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct()
class DeleteRecordsPartitionResult(Struct):
    """The new start offset of one partition, or why nothing was deleted."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct()
class DeleteRecordsTopicResult(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(api_key=21, versions="0-2", flexible="2+", kind="response")
class DeleteRecordsResponse(Struct):
    """A result for each requested partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
