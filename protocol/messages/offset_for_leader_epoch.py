"""OffsetForLeaderEpoch (23): where a leader epoch ended, to find out what was truncated (KIP-101).

Versions: 2 the client's own leader epoch is checked, throttle time (KIP-320); 3 replica id, -1 for
consumers and -2 where it is unknown (KIP-392); 4 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct


@struct()
class OffsetForLeaderPartition(Struct):
    """The requested leader epoch in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, versions="2+", ignorable=True)
    leader_epoch: int = int32()


@struct()
class OffsetForLeaderTopic(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(api_key=23, versions="2-4", flexible="4+", kind="request")
class OffsetForLeaderEpochRequest(Struct):
    """Leader epochs to look up."""

    replica_id: int = int32(default=-2, versions="3+", ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct()
class EpochEndOffset(Struct):
    """A leader epoch and the offset behind its last record."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1, versions="1+", ignorable=True)
    end_offset: int = int64(default=-1)


@struct()
class OffsetForLeaderTopicResult(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(api_key=23, versions="2-4", flexible="4+", kind="response")
class OffsetForLeaderEpochResponse(Struct):
    """The end offsets of the epochs."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
