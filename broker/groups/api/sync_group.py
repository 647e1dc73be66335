"""SyncGroup: the leader sends all assignments, and every member gets its own after the commit.

Source: Kafka's KafkaApis.handleSyncGroupRequest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_MIN_VERSION: Final = 5
"""From here on the request must name the protocol (KIP-559)."""


class SyncGroup(RequestHandler):
    """See the module."""

    api_key = ApiKey.SYNC_GROUP
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(self, groups: GroupCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups

    def lapsed_leaderships(self, request: SyncGroupRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: SyncGroupRequest
    ) -> HandlerResponse:
        """Serve one SyncGroup."""
        protocol = request.protocol_type, request.protocol_name
        if header.api_version >= PROTOCOL_MIN_VERSION and None in protocol:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            coordinator = self._groups.coordinator(request.group_id)
        except RequestError as rejection:
            return SyncGroupResponse(error_code=rejection.error)
        return coordinator.sync(request)
