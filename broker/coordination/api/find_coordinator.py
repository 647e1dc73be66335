"""FindCoordinator: the leader of a consumer group's or a transactional id's log group (KIP-98, KIP-699).

The first request creates `__consumer_offsets` or `__transaction_state` and waits for it, where Kafka responds
with COORDINATOR_NOT_AVAILABLE once. Share groups get INVALID_REQUEST, as from a Kafka that has none
(KIP-932). Source: Kafka's KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry, TopicCreator
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_MIN_VERSION: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
RESOURCE_TYPES: Final = {GROUP: AclResourceType.GROUP, TRANSACTION: AclResourceType.TRANSACTIONAL_ID}
DENIED: Final = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NO_ERROR_TEXT: Final = "NONE"
"""Kafka's message beside no error, up to version 3."""


Registry = CoordinatorRegistry[Any]
"""The registry of groups' or of transactions' coordinators."""


class FindCoordinator(RequestHandler):
    """See the module."""

    api_key = ApiKey.FIND_COORDINATOR
    versions = (0, 6)

    def __init__(
        self,
        groups: Registry,
        transactions: Registry,
        topic_creator: TopicCreator,
        endpoints: NodeEndpoints,
        time_slicer: TimeSlicer,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._registries = {GROUP: groups, TRANSACTION: transactions}
        self._topic_creator = topic_creator
        self._endpoints = endpoints
        self._time_slicer = time_slicer

    def handle(
        self, client: ClientContext, header: RequestHeader, request: FindCoordinatorRequest
    ) -> HandlerResponse:
        """One result for each key."""
        registry = self._registries.get(request.key_type)
        if request.key_type == SHARE and not self._access.allows_on_cluster(
            client, AclOperation.CLUSTER_ACTION
        ):
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return _error_response(header.api_version, request, error, error.message)
        if registry is None:
            message = f"Unknown coordinator type {request.key_type}."
            return _error_response(header.api_version, request, ErrorCode.INVALID_REQUEST, message)
        keys = request.coordinator_keys if header.api_version >= BATCHED_MIN_VERSION else [request.key]
        if not registry.is_ready and any(self._may_describe(client, request.key_type, key) for key in keys):
            return self._create_topic_and_respond(client, registry, header.api_version, request)
        return self._respond(client, registry, header.api_version, request)

    def _may_describe(self, client: ClientContext, key_type: int, key: str) -> bool:
        return self._access.allows(client, AclOperation.DESCRIBE, RESOURCE_TYPES[key_type], key)

    async def _create_topic_and_respond(
        self, client: ClientContext, registry: Registry, api_version: int, request: FindCoordinatorRequest
    ) -> HandlerResponse:
        try:
            await registry.create_topic(self._topic_creator)
        except RequestError as rejection:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return _error_response(api_version, request, error, rejection.message)
        return self._respond(client, registry, api_version, request)

    def _respond(
        self, client: ClientContext, registry: Registry, api_version: int, request: FindCoordinatorRequest
    ) -> HandlerResponse:
        key_type = request.key_type

        def find(key: str) -> Endpoint | None:
            return self._endpoints.of(registry.coordinator_node(key), client)

        def coordinator(key: str) -> Coordinator:
            if self._may_describe(client, key_type, key):
                return _coordinator(key, find(key))
            return _error_coordinator(key, DENIED[key_type])

        if api_version < BATCHED_MIN_VERSION:
            if not self._may_describe(client, key_type, request.key):
                error = DENIED[key_type]
                return _error_response(api_version, request, error, error.message)
            endpoint = find(request.key)
            if endpoint is None:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                return _error_response(api_version, request, error, error.message)
            return FindCoordinatorResponse(
                error_message=NO_ERROR_TEXT,
                node_id=endpoint.node_id,
                host=endpoint.host,
                port=endpoint.port,
            )
        return respond_in_slices(
            self._time_slicer,
            request.coordinator_keys,
            coordinator,
            lambda coordinators: FindCoordinatorResponse(coordinators=coordinators),
        )


def _coordinator(key: str, endpoint: Endpoint | None) -> Coordinator:
    if endpoint is None:
        return _error_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key, node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, error_message=""
    )


def _error_coordinator(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.message)


def _error_response(
    api_version: int, request: FindCoordinatorRequest, error: ErrorCode, message: str
) -> FindCoordinatorResponse:
    if api_version < BATCHED_MIN_VERSION:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
