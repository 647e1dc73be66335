"""FindCoordinator: this node, for every consumer group; nobody yet for transactions (KIP-98, KIP-699).

The first one makes `__consumer_offsets` and waits for it, where Kafka says COORDINATOR_NOT_AVAILABLE once.
That is also what transactional ids get, as from a Kafka whose coordinator's topic is not there yet: clients
wait and ask again, no client takes it for a broken connection, and the log says who waits. Share groups get
INVALID_REQUEST, as from a Kafka that has none (KIP-932). Source: Kafka's KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import Final

from broker.context import Answer, ClientContext
from broker.refused import Refused
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


def handle(context: ClientContext, header: RequestHeader, request: FindCoordinatorRequest) -> Answer:
    """The same answer for each key."""
    if request.key_type == GROUP:
        if not context.services.groups.is_ready:
            return _after_making(context, header.api_version, request)
        return _found(context, header.api_version, request)
    if request.key_type == TRANSACTION:
        keys = [request.key] if header.api_version < BATCHED_SINCE else request.coordinator_keys
        for key in keys[:1]:
            context.services.unserved.asked(header.client_id, key)
        message = "This broker does not serve transactions yet."
        return _refused(header.api_version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    message = f"Unknown coordinator type {request.key_type}."
    return _refused(header.api_version, request, ErrorCode.INVALID_REQUEST, message)


async def _after_making(
    context: ClientContext, api_version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    try:
        await context.services.groups.ready()
    except Refused as refused:
        return _refused(api_version, request, ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message)
    return _found(context, api_version, request)


def _found(
    context: ClientContext, api_version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    here = context.endpoint()
    if api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_message=FOUND, node_id=here.node_id, host=here.host, port=here.port
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=here.node_id, host=here.host, port=here.port, error_message="")
            for key in request.coordinator_keys
        ]
    )


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
