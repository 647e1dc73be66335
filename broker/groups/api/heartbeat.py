"""Heartbeat: refreshes a member's session; the response tells it to rejoin during a rebalance."""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API_KEY = ApiKey.HEARTBEAT
VERSIONS = (0, 4)


def handle(context: ClientContext, header: RequestHeader, request: HeartbeatRequest) -> HandlerResponse:
    """Serve one Heartbeat."""
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        coordinator = context.services.consumer_groups.coordinator(request.group_id)
    except RequestError as rejection:
        return HeartbeatResponse(error_code=rejection.error)
    return HeartbeatResponse(error_code=coordinator.heartbeat(request))
