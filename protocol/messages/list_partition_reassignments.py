"""ListPartitionReassignments (46): partitions on their way to other brokers (KIP-455)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@struct()
class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(api_key=46, versions="0", flexible="0+", kind="request")
class ListPartitionReassignmentsRequest(Struct):
    """The requested partitions; null means all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable="0+"
    )


@struct()
class OngoingPartitionReassignment(Struct):
    """One partition that is being moved."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@struct()
class OngoingTopicReassignment(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(api_key=46, versions="0", flexible="0+", kind="response")
class ListPartitionReassignmentsResponse(Struct):
    """The partitions whose replicas are being moved."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
