"""Metadata (3): brokers, topics, partitions and their leaders.

Versions: 0 and 1 differ in "all topics": an empty list in 0, null from 1, where an empty list is none;
1 racks, controller, internal topics; 2 cluster id (KIP-78); 3 throttle time; 4 the client may forbid
topic creation; 5 offline replicas; 6 throttling is the client's duty (KIP-219); 7 leader epochs
(KIP-320); 8 authorized operations (KIP-430); 9 flexible; 10 topic ids (KIP-516); 11 the cluster's
authorized operations moved to DescribeCluster (KIP-700); 12 topics by id, so names may be null;
13 a top-level error, for clients that should bootstrap again (KIP-1102).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, message, string, struct, uuid


@struct()
class MetadataRequestTopic(Struct):
    """One topic, by name or by id."""

    topic_id: bytes = uuid(versions="10+", ignorable=True)
    name: str | None = string(nullable="10+")


@message(api_key=3, versions="0-13", flexible="9+", kind="request")
class MetadataRequest(Struct):
    """The topics to describe; null is all of them."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean(default=True, versions="4+")
    include_cluster_authorized_operations: bool = boolean(versions="8-10")
    include_topic_authorized_operations: bool = boolean(versions="8+")


@struct()
class MetadataResponseBroker(Struct):
    """One broker and its advertised address."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, versions="1+", nullable="1+", ignorable=True)


@struct()
class MetadataResponsePartition(Struct):
    """One partition: leader and replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, versions="7+", ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, versions="5+", ignorable=True)


@struct()
class MetadataResponseTopic(Struct):
    """One topic and its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid(versions="10+", ignorable=True)
    is_internal: bool = boolean(versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648, versions="8+")


@message(api_key=3, versions="0-13", flexible="9+", kind="response")
class MetadataResponse(Struct):
    """The cluster as this broker sees it."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, versions="2+", nullable="2+", ignorable=True)
    controller_id: int = int32(default=-1, versions="1+", ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=-2147483648, versions="8-10")
    error_code: int = int16(versions="13+", ignorable=True)
