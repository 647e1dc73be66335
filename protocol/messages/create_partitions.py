"""CreatePartitions (37): more partitions for topics that exist.

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
`count` is the new total; `assignments`, where given, are those of the new partitions only.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, message, string, struct


@struct()
class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition, chosen by hand."""

    broker_ids: list[int] = array(int32)


@struct()
class CreatePartitionsTopic(Struct):
    """One topic and how many partitions it is to have."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+", kind="request")
class CreatePartitionsRequest(Struct):
    """Topics to grow, or only to check."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct()
class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+", kind="response")
class CreatePartitionsResponse(Struct):
    """A result for each requested topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
