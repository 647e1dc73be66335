"""Fetch (1): batches of records to read, also what followers send.

Versions: 4 isolation level and aborted transactions (KIP-98); 5 log start offset (KIP-107); 6 storage
errors; 7 fetch sessions (KIP-227); 8 throttling is the client's duty (KIP-219); 9 the client's leader
epoch is checked (KIP-320); 10 zstd may be returned (KIP-110); 11 rack and preferred replica (KIP-392);
12 flexible, divergence by last fetched epoch (KIP-595); 13 topic ids in place of names (KIP-516); 14
OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405); 15 replica state in a tag, replica id gone (KIP-903); 16 leaders'
endpoints (KIP-951); 17 directory id (KIP-853); 18 the replica's high watermark (KIP-1166).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    int8,
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
from lockstep.protocol.primitives import Data


@struct()
class ReplicaState(Struct):
    """The follower that fetches."""

    replica_id: int = int32(default=-1, versions="15+")
    replica_epoch: int = int64(default=-1, versions="15+")


@struct()
class FetchPartition(Struct):
    """The offset to read from in one partition, and how much to read."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, versions="9+", ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, versions="12+")
    log_start_offset: int = int64(default=-1, versions="5+", ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(versions="17+", tagged="17+", tag=0, ignorable=True)
    high_watermark: int = int64(
        default=9223372036854775807, versions="18+", tagged="18+", tag=1, ignorable=True
    )


@struct()
class FetchTopic(Struct):
    """The partitions of one topic."""

    topic: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct()
class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    topic: str = string(versions="7-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[int] = array(int32, versions="7+")


@message(api_key=1, versions="4-18", flexible="12+", kind="request")
class FetchRequest(Struct):
    """The partitions to read; in a session only those that changed since the last request."""

    cluster_id: str | None = string(
        default=None, versions="12+", nullable="12+", tagged="12+", tag=0, ignorable=True
    )
    replica_id: int = int32(default=-1, versions="0-14")
    replica_state: ReplicaState = struct_field(ReplicaState, versions="15+", tagged="15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647, versions="3+", ignorable=True)
    isolation_level: int = int8(versions="4+", ignorable=True)
    session_id: int = int32(versions="7+", ignorable=True)
    session_epoch: int = int32(default=-1, versions="7+", ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, versions="7+")
    rack_id: str = string(versions="11+", ignorable=True)


@struct()
class EpochEndOffset(Struct):
    """A leader epoch and the offset behind its last record."""

    epoch: int = int32(default=-1, versions="12+")
    end_offset: int = int64(default=-1, versions="12+")


@struct()
class LeaderIdAndEpoch(Struct):
    """The current leader."""

    leader_id: int = int32(default=-1, versions="12+")
    leader_epoch: int = int32(default=-1, versions="12+")


@struct()
class SnapshotId(Struct):
    """The snapshot to load instead, when the log no longer reaches back."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct()
class AbortedTransaction(Struct):
    """A transaction whose records a consumer must skip."""

    producer_id: int = int64(versions="4+")
    first_offset: int = int64(versions="4+")


@struct()
class PartitionData(Struct):
    """Records of one partition, and its log's offsets."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1, versions="4+", ignorable=True)
    log_start_offset: int = int64(default=-1, versions="5+", ignorable=True)
    diverging_epoch: EpochEndOffset = struct_field(EpochEndOffset, versions="12+", tagged="12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct_field(LeaderIdAndEpoch, versions="12+", tagged="12+", tag=1)
    snapshot_id: SnapshotId = struct_field(SnapshotId, versions="12+", tagged="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, versions="4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32(default=-1, versions="11+")
    records: Data | None = record_data(nullable="0+")


@struct()
class FetchableTopicResponse(Struct):
    """The partitions of one topic."""

    topic: str = string(versions="0-12", ignorable=True)
    topic_id: bytes = uuid(versions="13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@struct()
class NodeEndpoint(Struct):
    """The address of a leader named in the response."""

    node_id: int = int32(versions="16+")
    host: str = string(versions="16+")
    port: int = int32(versions="16+")
    rack: str | None = string(default=None, versions="16+", nullable="16+")


@message(api_key=1, versions="4-18", flexible="12+", kind="response")
class FetchResponse(Struct):
    """The records; `records` may be one buffer or several, none is copied."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="7+", ignorable=True)
    session_id: int = int32(versions="7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="16+", tagged="16+", tag=0)
