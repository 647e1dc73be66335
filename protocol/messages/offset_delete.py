"""OffsetDelete (47): forget what a group has committed in some partitions (KIP-496).

Versions: 0 only, and never flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@struct()
class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = int32()


@struct()
class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(api_key=47, versions="0", flexible="none", kind="request")
class OffsetDeleteRequest(Struct):
    """Offsets to forget."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct()
class OffsetDeleteResponsePartition(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class OffsetDeleteResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(api_key=47, versions="0", flexible="none", kind="response")
class OffsetDeleteResponse(Struct):
    """One error for the group, and a result for each partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
