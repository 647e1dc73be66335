"""JoinGroup: become, or stay, a member of a group; the answer waits for the rebalance.

While it waits, further requests of its connection are served, their answers wait for this one's: clients use
a connection of its own for their coordinator. Versions: see the message table; all of them are served.
"""

from __future__ import annotations

from lockstep.broker.groups.group_responses import JoinAnswer, join_error
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.join_group import JoinGroupRequest

API_KEY = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)


def handle(context: ClientContext, header: RequestHeader, request: JoinGroupRequest) -> HandlerResponse:
    """Serve one JoinGroup."""
    if not request.group_id:
        return _error_response(header, request, ErrorCode.INVALID_GROUP_ID)
    try:
        coordinator = context.services.consumer_groups.coordinator(request.group_id)
    except RequestError as rejection:
        return _error_response(header, request, rejection.error)
    return coordinator.join(request, header.api_version, header.client_id or "", client_host(context))


def client_host(context: ClientContext) -> str:
    """The member's address as Kafka writes it: a slash, then the address."""
    return "/" + context.peer.rpartition(":")[0]


def _error_response(header: RequestHeader, request: JoinGroupRequest, error: ErrorCode) -> JoinAnswer:
    response = JoinAnswer(header.api_version)
    response.complete(join_error(error, request.member_id))
    return response
