"""The request of DescribeQuorum (55): see `describe_quorum`.

A module of its own, because Kafka gives its structs the names of the response's.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int32, message, string, struct


@struct()
class PartitionData(Struct):
    """One partition."""

    partition_index: int = int32()


@struct()
class TopicData(Struct):
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(api_key=55, versions="0-2", flexible="0+", kind="request")
class DescribeQuorumRequest(Struct):
    """The quorum to describe: partition 0 of __cluster_metadata."""

    topics: list[TopicData] = array(TopicData)
