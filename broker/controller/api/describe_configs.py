"""DescribeConfigs: the configurations of resources, with the source and the documentation of each value.

A group need not exist, nor does any have a configuration to begin with.

Source: Kafka's ConfigHelper for which resource names are rejected and how.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.config_access import check_config_access
from lockstep.broker.controller.config_changes import RESOURCES_AT_ONCE, check_node
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.metadata_image import GROUP_CONFIGS, WHOLE_CLUSTER
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, RequestHandler, await_response
from lockstep.broker.requests.sliced_response import encode_large
from lockstep.broker.settings.described_config import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

HYPOTHETICAL_TYPES: Final = (ResourceType.CLIENT_METRICS, ResourceType.GROUP)
"""These have configurations whatever their name."""
MAX_HYPOTHETICAL: Final = 1_000


class DescribeConfigs(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = (1, 4)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeConfigsRequest
    ) -> object | None:
        """One result per resource; each may be named once, as a few bytes name hundreds of configurations."""
        result_cache = _ResultCache(request)
        seen: set[tuple[int, str]] = set()
        hypothetical = 0
        results: list[DescribeConfigsResult] = []
        for number, resource in enumerate(request.resources, 1):
            if number % RESOURCES_AT_ONCE == 0:
                await asyncio.sleep(0)
            resource_key = resource.resource_type, resource.resource_name
            hypothetical += resource.resource_type in HYPOTHETICAL_TYPES
            problem = None
            if resource_key in seen:
                problem = "Each resource must appear at most once."
            elif resource.resource_type in HYPOTHETICAL_TYPES and hypothetical > MAX_HYPOTHETICAL:
                problem = f"At most {MAX_HYPOTHETICAL} groups and subscriptions in one request."
            seen.add(resource_key)
            results.append(self._describe(client, result_cache, resource, problem))
        response = DescribeConfigsResponse(results=results)
        configs = sum([len(result.configs) for result in results])
        return await await_response(encode_large(response, header.api_version, configs))

    def _describe(
        self,
        client: ClientContext,
        result_cache: _ResultCache,
        resource: DescribeConfigsResource,
        problem: str | None,
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if problem is not None:
                raise RequestError(ErrorCode.INVALID_REQUEST, problem)
            check_config_access(
                self._access,
                client,
                AclOperation.DESCRIBE_CONFIGS,
                resource.resource_type,
                resource.resource_name,
            )
            configs = self._configs(resource)
        except RequestError as rejection:
            result.error_code = rejection.error
            result.error_message = rejection.message
            return result
        keys = frozenset(resource.configuration_keys or ())
        result.configs = [
            result_cache.result(each) for each in configs if not keys or each.declared.name in keys
        ]
        return result

    def _configs(self, resource: DescribeConfigsResource) -> list[DescribedConfig]:
        """The configurations of one resource. Raises RequestError."""
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                check_name(name)
                topic = self._cluster.topic(name)
                if topic is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    raise RequestError(error, error.message)
                return describe_topic(topic.config, self._cluster.settings)
            case ResourceType.BROKER:
                if name == WHOLE_CLUSTER:
                    return describe_cluster_default(self._cluster.settings)
                node_id = self._cluster.settings.node_id
                check_node(
                    name, node_id, "Broker", f"Unexpected broker id, expected {node_id} or empty string,"
                )
                return describe_broker(self._cluster.settings)
            case ResourceType.BROKER_LOGGER:
                if not name:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                node_id = self._cluster.settings.node_id
                check_node(name, node_id, "Broker", f"Unexpected broker id, expected {node_id}")
                return describe_loggers()
            case ResourceType.GROUP:
                if not name:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                return describe_group(self._cluster.image.configs.get((GROUP_CONFIGS, name), {}))
            case ResourceType.CLIENT_METRICS:
                if not name:
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                    )
                return describe_client_metrics()
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")


class _ResultCache:
    """The results of this request. Equal configurations share one object: topics have most in common."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        self._results: dict[tuple[object, ...], DescribeConfigsResourceResult] = {}

    def result(self, config: DescribedConfig) -> DescribeConfigsResourceResult:
        """One configuration in the response."""
        declared = config.declared.name, config.declared.doc
        key = *declared, config.value, config.source, config.read_only, *config.synonyms
        cached = self._results.get(key)
        if cached is None:
            cached = self._results[key] = _result(config, self._request)
        return cached


def _result(config: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    declared = config.declared
    result = DescribeConfigsResourceResult(
        name=declared.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        config_type=int(declared.kind),
        documentation=declared.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in config.synonyms
        ]
    return result
