"""DescribeConfigs: what is configured, where each value comes from, and what it does.

Source: Kafka's ConfigHelper for which resource names are refused and how.
"""

from __future__ import annotations

from enum import IntEnum

from broker.context import Answer, ClientContext
from broker.topic_config import Described, describe_broker, describe_topic
from broker.topics import Refused, check_name
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API_KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = (1, 4)


class ResourceType(IntEnum):
    """What can have configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def handle(context: ClientContext, header: RequestHeader, request: DescribeConfigsRequest) -> Answer:
    """One result per resource."""
    return DescribeConfigsResponse(
        results=[_describe(context, request, resource) for resource in request.resources]
    )


def _describe(
    context: ClientContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        described, read_only = _configs(context, resource)
    except Refused as refused:
        result.error_code = refused.error
        result.error_message = refused.message
        return result
    keys = resource.configuration_keys
    result.configs = [
        _result(each, request, read_only) for each in described if keys is None or each.declared.name in keys
    ]
    return result


def _configs(context: ClientContext, resource: DescribeConfigsResource) -> tuple[list[Described], bool]:
    """What is configured for one resource, and whether it is fixed. Raises Refused."""
    services = context.services
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            topic = services.cluster.topic(name)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refused(error, error.message)
            return describe_topic(topic.config, services.settings), False
        case ResourceType.BROKER:
            if name == "":
                return [], False  # settings for all brokers that were changed while running: there are none
            _check_broker(name, services.settings.node_id)
            return describe_broker(services.settings), True
        case ResourceType.BROKER_LOGGER:
            _check_broker(name, services.settings.node_id)
            return [], False
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            if name == "":
                raise Refused(ErrorCode.INVALID_REQUEST, "The resource name must not be empty")
            return [], False
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")


def _check_broker(name: str, node_id: int) -> None:
    try:
        number = int(name)
    except ValueError:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name[:64]}"
        ) from None
    if number != node_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id} or empty string, but received {name[:64]}",
        )


def _result(
    described: Described, request: DescribeConfigsRequest, read_only: bool
) -> DescribeConfigsResourceResult:
    declared = described.declared
    result = DescribeConfigsResourceResult(
        name=declared.name,
        value=described.value,
        read_only=read_only,
        config_source=described.source,
        config_type=int(declared.kind),
        documentation=declared.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in described.synonyms
        ]
    return result
