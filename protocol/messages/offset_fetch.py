"""OffsetFetch (9): what a group has committed.

Versions: 1 one group; 2 null means all its topics, and there is a top-level error; 3 throttle time;
4 throttling is the client's duty (KIP-219); 5 leader epochs (KIP-320); 6 flexible; 7 wait for offsets of
open transactions (KIP-447); 8 several groups (KIP-709); 9 members of the consumer protocol (KIP-848);
10 topic ids in place of names (KIP-848).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@struct()
class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = string(versions="0-7")
    partition_indexes: list[int] = array(int32, versions="0-7")


@struct()
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8."""

    name: str = string(versions="8-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partition_indexes: list[int] = array(int32, versions="8+")


@struct()
class OffsetFetchRequestGroup(Struct):
    """The topics to read of one group; null is all of them."""

    group_id: str = string(versions="8+")
    member_id: str | None = string(default=None, versions="9+", nullable="9+", ignorable=True)
    member_epoch: int = int32(default=-1, versions="9+", ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, versions="8+", nullable="8+"
    )


@message(api_key=9, versions="1-10", flexible="6+", kind="request")
class OffsetFetchRequest(Struct):
    """One group up to version 7, several from 8."""

    group_id: str = string(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, versions="0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, versions="8+")
    require_stable: bool = boolean(versions="7+")


@struct()
class OffsetFetchResponsePartition(Struct):
    """The committed offset of one partition, up to version 7; offset -1 for nothing."""

    partition_index: int = int32(versions="0-7")
    committed_offset: int = int64(versions="0-7")
    committed_leader_epoch: int = int32(default=-1, versions="5-7", ignorable=True)
    metadata: str | None = string(versions="0-7", nullable="0-7")
    error_code: int = int16(versions="0-7")


@struct()
class OffsetFetchResponseTopic(Struct):
    """The partitions of one topic, up to version 7."""

    name: str = string(versions="0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, versions="0-7")


@struct()
class OffsetFetchResponsePartitions(Struct):
    """The committed offset of one partition, from version 8; offset -1 for nothing."""

    partition_index: int = int32(versions="8+")
    committed_offset: int = int64(versions="8+")
    committed_leader_epoch: int = int32(default=-1, versions="8+", ignorable=True)
    metadata: str | None = string(versions="8+", nullable="8+")
    error_code: int = int16(versions="8+")


@struct()
class OffsetFetchResponseTopics(Struct):
    """The partitions of one topic, from version 8."""

    name: str = string(versions="8-9", ignorable=True)
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, versions="8+")


@struct()
class OffsetFetchResponseGroup(Struct):
    """The committed offsets of one group."""

    group_id: str = string(versions="8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, versions="8+")
    error_code: int = int16(versions="8+")


@message(api_key=9, versions="1-10", flexible="6+", kind="response")
class OffsetFetchResponse(Struct):
    """The committed offsets of the group, or of each group."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, versions="0-7")
    error_code: int = int16(versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, versions="8+")
