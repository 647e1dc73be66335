"""FindCoordinator: the leader of a consumer group's or a transactional id's log group (KIP-98, KIP-699).

The first request creates `__consumer_offsets` or `__transaction_state` and waits for it, where Kafka says
COORDINATOR_NOT_AVAILABLE once. Share groups get INVALID_REQUEST, as from a Kafka that has none (KIP-932).
Source: Kafka's KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.broker.coordination.coordinator_registry import CoordinatorRegistry
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)

BATCHED_MIN_VERSION: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
NO_ERROR_TEXT: Final = "NONE"
"""Kafka's message beside no error, up to version 3."""


Registry = CoordinatorRegistry[Any]
"""The registry of groups' or of transactions' coordinators."""


def handle(context: ClientContext, header: RequestHeader, request: FindCoordinatorRequest) -> HandlerResponse:
    """The same answer for each key."""
    services = context.services
    registries: dict[int, Registry] = {GROUP: services.consumer_groups, TRANSACTION: services.transactions}
    registry = registries.get(request.key_type)
    if registry is not None:
        if not registry.is_ready:
            return _create_topic_and_respond(context, registry, header.api_version, request)
        return _respond(context, registry, header.api_version, request)
    message = f"Unknown coordinator type {request.key_type}."
    return _error_response(header.api_version, request, ErrorCode.INVALID_REQUEST, message)


async def _create_topic_and_respond(
    context: ClientContext, registry: Registry, api_version: int, request: FindCoordinatorRequest
) -> HandlerResponse:
    try:
        await registry.ready()
    except RequestError as rejection:
        return _error_response(api_version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, rejection.message)
    return _respond(context, registry, api_version, request)


def _respond(
    context: ClientContext, registry: Registry, api_version: int, request: FindCoordinatorRequest
) -> HandlerResponse:
    if api_version < BATCHED_MIN_VERSION:
        endpoint = context.endpoint_of(registry.coordinator_node(request.key))
        if endpoint is None:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return FindCoordinatorResponse(error_code=error, error_message=error.message, node_id=-1, port=-1)
        return FindCoordinatorResponse(
            error_message=NO_ERROR_TEXT, node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port
        )
    return respond_in_slices(
        context,
        request.coordinator_keys,
        lambda key: _coordinator(key, context.endpoint_of(registry.coordinator_node(key))),
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
