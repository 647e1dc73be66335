"""ListGroups: every group coordinated here, filtered by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class ListGroups(RequestHandler):
    """See the module."""

    api_key = ApiKey.LIST_GROUPS
    versions = (0, 5)
    needs = Needs.COORDINATOR

    def __init__(self, groups: GroupCoordinators, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups

    def lapsed_leaderships(self, request: ListGroupsRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ListGroupsRequest
    ) -> HandlerResponse:
        """Serve one ListGroups. Filters do not mind case; a name that is no state or type finds nothing."""
        try:
            listed = self._groups.listed()
        except RequestError as rejection:
            return ListGroupsResponse(error_code=rejection.error)
        states = {each.strip().lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        access = self._access
        lists_all = access.allows_on_cluster(client, AclOperation.DESCRIBE, is_requested=False)
        return ListGroupsResponse(
            groups=[
                group
                for group in listed
                if (not states or group.group_state.lower() in states)
                and (not types or group.group_type.lower() in types)
                and (
                    lists_all
                    or access.allows(
                        client,
                        AclOperation.DESCRIBE,
                        AclResourceType.GROUP,
                        group.group_id,
                        is_requested=False,
                    )
                )
            ]
        )
