"""DescribeGroups: members of classic groups, their metadata and their assignments.

An unknown group is Dead, and so is one of another protocol; from version 6 that is an error (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.classic_group import State
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_MIN_VERSION: Final = 6


class DescribeGroups(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_GROUPS
    versions = (0, 6)
    needs = Needs.COORDINATOR

    def __init__(
        self, groups: GroupCoordinators, time_slicer: TimeSlicer, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._time_slicer = time_slicer

    def lapsed_leaderships(self, request: DescribeGroupsRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeGroupsRequest
    ) -> HandlerResponse:
        """Serves one DescribeGroups."""

        def describe(group_id: str) -> DescribedGroup:
            if not self._access.allows(client, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
                return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = self._describe(header.api_version, group_id)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = self._access.authorized_operations(
                    client, AclResourceType.GROUP, group_id
                )
            return group

        return respond_in_slices(
            self._time_slicer,
            dict.fromkeys(request.groups),
            describe,
            lambda groups: DescribeGroupsResponse(groups=groups),
        )

    def _describe(self, api_version: int, group_id: str) -> DescribedGroup:
        try:
            _, coordinator = self._groups.of(group_id)
        except RequestError as rejection:
            return DescribedGroup(group_id=group_id, error_code=rejection.error)
        description = coordinator.describe(group_id)
        if description is not None:
            return description
        missing = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if api_version >= NOT_FOUND_MIN_VERSION:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            is_consumer = coordinator.consumer.group(group_id) is not None
            problem = "is not a classic group" if is_consumer else "not found"
            missing.error_message = f"Group {group_id} {problem}."
        return missing
