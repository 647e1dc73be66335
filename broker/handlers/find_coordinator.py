"""FindCoordinator: who leads the log group of a consumer group or a transactional id (KIP-98, KIP-699).

The first one makes `__consumer_offsets` or `__transaction_state` and waits for it, where Kafka says
COORDINATOR_NOT_AVAILABLE once. Share groups get INVALID_REQUEST, as from a Kafka that has none (KIP-932).
Source: Kafka's KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import Any, Final

from broker.context import ClientContext, HandlerResponse
from broker.coordination.coordination import Coordination
from broker.endpoint import Endpoint
from broker.handlers.sliced_response import respond_in_slices
from broker.request_errors import RequestError
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)

BATCHED_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
FOUND: Final = "NONE"
"""Kafka's message beside no error, up to version 3."""


Coordinators = Coordination[Any]
"""The front door to groups, or to transactions."""


def handle(context: ClientContext, header: RequestHeader, request: FindCoordinatorRequest) -> HandlerResponse:
    """The same answer for each key."""
    services = context.services
    known: dict[int, Coordinators] = {GROUP: services.consumer_groups, TRANSACTION: services.transactions}
    coordinators = known.get(request.key_type)
    if coordinators is not None:
        if not coordinators.is_ready:
            return _after_making(context, coordinators, header.api_version, request)
        return _found(context, coordinators, header.api_version, request)
    message = f"Unknown coordinator type {request.key_type}."
    return _refused(header.api_version, request, ErrorCode.INVALID_REQUEST, message)


async def _after_making(
    context: ClientContext, coordinators: Coordinators, api_version: int, request: FindCoordinatorRequest
) -> HandlerResponse:
    try:
        await coordinators.ready()
    except RequestError as refused:
        return _refused(api_version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message)
    return _found(context, coordinators, api_version, request)


def _found(
    context: ClientContext, coordinators: Coordinators, api_version: int, request: FindCoordinatorRequest
) -> HandlerResponse:
    if api_version < BATCHED_SINCE:
        found = context.endpoint_of(coordinators.coordinator_node(request.key))
        if found is None:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return FindCoordinatorResponse(error_code=error, error_message=error.message, node_id=-1, port=-1)
        return FindCoordinatorResponse(
            error_message=FOUND, node_id=found.node_id, host=found.host, port=found.port
        )
    return respond_in_slices(
        context,
        request.coordinator_keys,
        lambda key: _coordinator(key, context.endpoint_of(coordinators.coordinator_node(key))),
        lambda found: FindCoordinatorResponse(coordinators=found),
    )


def _coordinator(key: str, found: Endpoint | None) -> Coordinator:
    if found is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.message)
    return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port, error_message="")


def _refused(
    api_version: int, request: FindCoordinatorRequest, error: ErrorCode, message: str
) -> FindCoordinatorResponse:
    if api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
