"""JoinGroup: become, or stay, a member of a group; the response waits for the rebalance.

While it waits, further requests of its connection are served, but their responses wait for this one: clients
use a separate connection to their coordinator. Versions: see the message table; all of them are served.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_responses import PendingJoinResponse, join_error
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.join_group import JoinGroupRequest


class JoinGroup(RequestHandler):
    """See the module."""

    api_key = ApiKey.JOIN_GROUP
    versions = (0, 9)
    needs = Needs.COORDINATOR

    def __init__(self, groups: GroupCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups

    def lapsed_leaderships(self, request: JoinGroupRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: JoinGroupRequest
    ) -> HandlerResponse:
        """Serve one JoinGroup."""
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return _error_response(header, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return _error_response(header, request, ErrorCode.INVALID_GROUP_ID)
        try:
            coordinator = self._groups.coordinator(request.group_id)
        except RequestError as rejection:
            return _error_response(header, request, rejection.error)
        return coordinator.join(request, header.api_version, header.client_id or "", client_host(client))


def client_host(client: ClientContext) -> str:
    """The member's address as Kafka writes it: a slash, then the address."""
    return f"/{client.host}"


def _error_response(
    header: RequestHeader, request: JoinGroupRequest, error: ErrorCode
) -> PendingJoinResponse:
    response = PendingJoinResponse(header.api_version)
    response.complete(join_error(error, request.member_id))
    return response
