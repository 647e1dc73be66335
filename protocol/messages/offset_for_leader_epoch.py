"""NOTES"""

from __future__ import annotations

from protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@struct()
class OffsetForLeaderPartition(Struct):
    """DOC OffsetForLeaderPartition"""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, versions="2+", ignorable=True)
    leader_epoch: int = int32()


@struct()
class OffsetForLeaderTopic(Struct):
    """DOC OffsetForLeaderTopic"""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(api_key=23, versions="2-4", flexible="4+", kind="request")
class OffsetForLeaderEpochRequest(Struct):
    """DOC OffsetForLeaderEpochRequest"""

    replica_id: int = int32(default=-2, versions="3+", ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct()
class EpochEndOffset(Struct):
    """DOC EpochEndOffset"""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1, versions="1+", ignorable=True)
    end_offset: int = int64(default=-1)


@struct()
class OffsetForLeaderTopicResult(Struct):
    """DOC OffsetForLeaderTopicResult"""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(api_key=23, versions="2-4", flexible="4+", kind="response")
class OffsetForLeaderEpochResponse(Struct):
    """DOC OffsetForLeaderEpochResponse"""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
