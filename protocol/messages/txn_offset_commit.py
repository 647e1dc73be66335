"""TxnOffsetCommit (28): how far a group will have read once the transaction commits (KIP-98).

Versions: 1 throttling is the client's duty (KIP-219); 2 leader epochs (KIP-320); 3 flexible, and who of the
group commits (KIP-447); 4 TRANSACTION_ABORTABLE (KIP-890); 5 adds the group to the transaction, too: for
transactions of version 2 only (KIP-890); 6 topic ids in place of names (KIP-1319).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct, uuid


@struct()
class TxnOffsetCommitRequestPartition(Struct):
    """The next offset to read in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, versions="2+", ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct()
class TxnOffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-5", ignorable=True)
    topic_id: bytes = uuid(versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(api_key=28, versions="0-6", flexible="3+", kind="request")
class TxnOffsetCommitRequest(Struct):
    """Offsets to store with a transaction."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32(default=-1, versions="3+")
    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(default=None, versions="3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct()
class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = string(versions="0-5", ignorable=True)
    topic_id: bytes = uuid(versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(api_key=28, versions="0-6", flexible="3+", kind="response")
class TxnOffsetCommitResponse(Struct):
    """A result for each partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
