"""ListConfigResources: topics, brokers, their loggers, and the groups that configure anything (KIP-1142).

Version 0 asks for subscriptions to clients' metrics, of which there are none.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.metadata.metadata_image import GROUP_CONFIGS
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API_KEY = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = (0, 1)

_LISTED: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    context: ClientContext, header: RequestHeader, request: ListConfigResourcesRequest
) -> HandlerResponse:
    """The names, by type."""
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
            for name in _names(context, kind)
        ]
    )


def _names(context: ClientContext, kind: ResourceType) -> list[str]:
    cluster = context.services.cluster
    match kind:
        case ResourceType.TOPIC:
            return [topic.name for topic in cluster.topics()]
        case ResourceType.GROUP:
            return sorted(
                name for resource_type, name in cluster.image.configs if resource_type == GROUP_CONFIGS
            )
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(each) for each in context.services.nodes.registered_ids()]
    return []
