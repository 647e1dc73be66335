"""ElectLeaders (43): let the preferred, or any, replica lead (KIP-183).

Versions: 1 the kind of election, an error for the whole response (KIP-460); 2 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@struct()
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(api_key=43, versions="0-2", flexible="2+", kind="request")
class ElectLeadersRequest(Struct):
    """Partitions that are to get a leader; null is all."""

    election_type: int = int8(versions="1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct()
class PartitionResult(Struct):
    """The result for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct()
class ReplicaElectionResult(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(api_key=43, versions="0-2", flexible="2+", kind="response")
class ElectLeadersResponse(Struct):
    """A result for each requested partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
