"""ListConfigResources: topics, brokers, their loggers, and the groups that configure anything (KIP-1142).

Version 0 requests subscriptions to clients' metrics, of which there are none.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.metadata_image import GROUP_CONFIGS
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


class ListConfigResources(RequestHandler):
    """See the module."""

    api_key = ApiKey.LIST_CONFIG_RESOURCES
    versions = (0, 1)

    def __init__(
        self, cluster: MetadataCache, nodes: NodeRegistry, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ListConfigResourcesRequest
    ) -> HandlerResponse:
        """The names, by type."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE_CONFIGS):
            return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        requested = set(request.resource_types) or set(_LISTED)
        if header.api_version == 0:
            requested = {ResourceType.CLIENT_METRICS}
        if not requested.issubset(_LISTED):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in _LISTED
                if kind in requested
                for name in self._names(kind)
            ]
        )

    def _names(self, kind: ResourceType) -> list[str]:
        cluster = self._cluster
        match kind:
            case ResourceType.TOPIC:
                return [topic.name for topic in cluster.topics()]
            case ResourceType.GROUP:
                return sorted(
                    name for resource_type, name in cluster.image.configs if resource_type == GROUP_CONFIGS
                )
            case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
                return [str(each) for each in self._nodes.registered_ids()]
        return []
