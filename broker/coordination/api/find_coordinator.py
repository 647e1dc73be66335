"""FindCoordinator: the leader of a consumer group's or a transactional id's log group (KIP-98, KIP-699).

The first request creates `__consumer_offsets` or `__transaction_state` and waits for it, where Kafka responds
with COORDINATOR_NOT_AVAILABLE once. Share groups get INVALID_REQUEST, as from a Kafka that has none
(KIP-932). Source: Kafka's KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry, TopicCreator
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
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
    ) -> None:
        self._registries = {GROUP: groups, TRANSACTION: transactions}
        self._topic_creator = topic_creator
        self._endpoints = endpoints
        self._time_slicer = time_slicer

    def handle(
        self, client: ClientContext, header: RequestHeader, request: FindCoordinatorRequest
    ) -> HandlerResponse:
        """One result for each key."""
        registry = self._registries.get(request.key_type)
        if registry is None:
            message = f"Unknown coordinator type {request.key_type}."
            return _error_response(header.api_version, request, ErrorCode.INVALID_REQUEST, message)
        if not registry.is_ready:
            return self._create_topic_and_respond(client, registry, header.api_version, request)
        return self._respond(client, registry, header.api_version, request)

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
        def find(key: str) -> Endpoint | None:
            return self._endpoints.of(registry.coordinator_node(key), client)

        if api_version < BATCHED_MIN_VERSION:
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
            lambda key: _coordinator(key, find(key)),
            lambda coordinators: FindCoordinatorResponse(coordinators=coordinators),
        )


def _coordinator(key: str, endpoint: Endpoint | None) -> Coordinator:
    if endpoint is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.message)
    return Coordinator(
        key=key, node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, error_message=""
    )


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
