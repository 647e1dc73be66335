"""DescribeCluster: the brokers and the cluster's id (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeView
from lockstep.broker.requests.authorized_operations import NOT_REQUESTED
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeCluster(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_CLUSTER
    versions = (0, 2)

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeView,
        endpoints: NodeEndpoints,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeClusterRequest
    ) -> HandlerResponse:
        """The advertised nodes and the controller; the other registered nodes are reported as fenced, on
        request."""
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
        brokers = [_broker(each) for each in self._endpoints.all(client)]
        if request.include_fenced_brokers:
            brokers += self._fenced_brokers(client, {each.broker_id for each in brokers})
        operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            cluster_id=self._cluster.cluster_id or "",
            controller_id=self._nodes.live_leader_of(METADATA_GROUP),
            brokers=brokers,
            cluster_authorized_operations=self._access.cluster_operations(client)
            if operations
            else NOT_REQUESTED,
        )

    def _fenced_brokers(self, client: ClientContext, listed: Set[int]) -> list[DescribeClusterBroker]:
        """The recorded nodes that are not listed, where this client's listener would reach them."""
        registered = self._nodes.registered_ids()
        endpoints = [self._endpoints.of(each, client) for each in registered if each not in listed]
        return [_broker(each, is_fenced=True) for each in endpoints if each is not None]


def _broker(endpoint: Endpoint, is_fenced: bool = False) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
        rack=endpoint.rack,
        is_fenced=is_fenced,
    )
