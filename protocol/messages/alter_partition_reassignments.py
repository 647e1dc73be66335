"""AlterPartitionReassignments (45): move partitions to other brokers, or stop that (KIP-455).

Versions: 1 the number of replicas may be kept from changing (KIP-860). Null replicas stop what is under way.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, message, string, struct


@struct()
class ReassignablePartition(Struct):
    """The replicas that one partition is to have."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, default=None, nullable="0+")


@struct()
class ReassignableTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(api_key=45, versions="0-1", flexible="0+", kind="request")
class AlterPartitionReassignmentsRequest(Struct):
    """Partitions to move."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(default=True, versions="1+")
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct()
class ReassignablePartitionResponse(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct()
class ReassignableTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(api_key=45, versions="0-1", flexible="0+", kind="response")
class AlterPartitionReassignmentsResponse(Struct):
    """A result for each requested partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(default=True, versions="1+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
