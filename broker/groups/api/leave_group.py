"""LeaveGroup: members go at once instead of by timeout; administrators remove static ones by instance id."""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


class LeaveGroup(RequestHandler):
    """See the module."""

    api_key = ApiKey.LEAVE_GROUP
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(self, groups: GroupCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups

    def lapsed_leaderships(self, request: LeaveGroupRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: LeaveGroupRequest
    ) -> HandlerResponse:
        """Serve one LeaveGroup."""
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            coordinator = self._groups.coordinator(request.group_id)
        except RequestError as rejection:
            return LeaveGroupResponse(error_code=rejection.error)
        return coordinator.leave(request, header.api_version)
