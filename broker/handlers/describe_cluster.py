"""DescribeCluster: the brokers and the cluster's id (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from typing import Final

from broker.context import Answer, ClientContext
from broker.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from broker.metadata import METADATA_GROUP
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API_KEY = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: ClientContext, header: RequestHeader, request: DescribeClusterRequest) -> Answer:
    """Those that clients are told of, and who leads them."""
    if request.endpoint_type != BROKERS:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = (
                "The request was sent to an endpoint of type BROKER, "
                "but we wanted an endpoint of type CONTROLLER"
            )
        return DescribeClusterResponse(error_code=error, error_message=message)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=context.services.cluster.cluster_id or "",
        controller_id=context.services.nodes.live_leader_of(METADATA_GROUP),
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in context.endpoints()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )
