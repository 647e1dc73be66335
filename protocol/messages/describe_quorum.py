"""DescribeQuorum (55): who leads the cluster's metadata and how far its voters are (KIP-595).

Versions: 1 when voters were last heard of (KIP-836); 2 texts of errors, directory ids and where the voters
are reached (KIP-853). The structs of the request are `describe_quorum_request`'s: Kafka gives them the names
of those of the response.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, int64, message, string, struct, uint16, uuid
from lockstep.protocol.messages.describe_quorum_request import DescribeQuorumRequest

__all__ = ["DescribeQuorumRequest", "DescribeQuorumResponse"]


@struct()
class ReplicaState(Struct):
    """The log end and the last fetch of one replica."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(versions="2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, versions="1+", ignorable=True)
    last_caught_up_timestamp: int = int64(default=-1, versions="1+", ignorable=True)


@struct()
class PartitionData(Struct):
    """One partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(versions="2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct()
class TopicData(Struct):
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@struct()
class Listener(Struct):
    """An address of a voter."""

    name: str = string(versions="2+")
    host: str = string(versions="2+")
    port: int = uint16(versions="2+")


@struct()
class Node(Struct):
    """One voter."""

    node_id: int = int32(versions="2+")
    listeners: list[Listener] = array(Listener, versions="2+")


@message(api_key=55, versions="0-2", flexible="0+", kind="response")
class DescribeQuorumResponse(Struct):
    """The quorum."""

    error_code: int = int16()
    error_message: str | None = string(versions="2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, versions="2+")
