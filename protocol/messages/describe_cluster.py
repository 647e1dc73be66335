"""DescribeCluster (60): brokers, controller and cluster id for administration (KIP-700).

Versions: 0 flexible from the start; 1 brokers or controllers (KIP-919); 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct


@message(api_key=60, versions="0-2", flexible="0+", kind="request")
class DescribeClusterRequest(Struct):
    """Requests the cluster's nodes; its only parameters are what to include."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, versions="1+")
    include_fenced_brokers: bool = boolean(versions="2+")


@struct()
class DescribeClusterBroker(Struct):
    """One broker, or controller."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable="0+")
    is_fenced: bool = boolean(versions="2+")


@message(api_key=60, versions="0-2", flexible="0+", kind="response")
class DescribeClusterResponse(Struct):
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    endpoint_type: int = int8(default=1, versions="1+")
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
