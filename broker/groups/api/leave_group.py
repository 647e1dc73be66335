"""LeaveGroup: members go at once instead of by timeout; administrators remove static ones by instance id."""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

API_KEY = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)


def handle(context: ClientContext, header: RequestHeader, request: LeaveGroupRequest) -> HandlerResponse:
    """Serve one LeaveGroup."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        coordinator = context.services.consumer_groups.coordinator(request.group_id)
    except RequestError as rejection:
        return LeaveGroupResponse(error_code=rejection.error)
    return coordinator.leave(request, header.api_version)
