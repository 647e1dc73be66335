"""OffsetCommit (8): how far a group has read.

Versions: 2 retention time; 3 throttle time; 4 throttling is the client's duty (KIP-219); 5 retention is
the broker's alone (KIP-211); 6 leader epochs (KIP-320); 7 static members (KIP-345); 8 flexible; 9 members
of the consumer protocol (KIP-848); 10 topic ids in place of names (KIP-848).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct, uuid


@struct()
class OffsetCommitRequestPartition(Struct):
    """The next offset to read in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, versions="6+", ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct()
class OffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(api_key=8, versions="2-10", flexible="8+", kind="request")
class OffsetCommitRequest(Struct):
    """Offsets to store, by a member or, with generation -1, from outside."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1, versions="1+", ignorable=True)
    member_id: str = string(versions="1+", ignorable=True)
    group_instance_id: str | None = string(default=None, versions="7+", nullable="7+")
    retention_time_ms: int = int64(default=-1, versions="2-4", ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct()
class OffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class OffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(api_key=8, versions="2-10", flexible="8+", kind="response")
class OffsetCommitResponse(Struct):
    """A result for each partition."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
