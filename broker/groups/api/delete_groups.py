"""DeleteGroups: deletes groups without members, and their committed offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    Needs,
    PendingResponse,
    RequestHandler,
)
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


class DeleteGroups(RequestHandler):
    """See the module."""

    api_key = ApiKey.DELETE_GROUPS
    versions = (0, 3)
    needs = Needs.COORDINATOR

    def __init__(
        self, groups: GroupCoordinators, time_slicer: TimeSlicer, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._time_slicer = time_slicer

    def lapsed_leaderships(self, request: DeleteGroupsRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards()

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DeleteGroupsRequest
    ) -> HandlerResponse:
        """Serve one DeleteGroups; the response waits for the commits."""
        names = dict.fromkeys(request.groups_names)
        if not names:
            return DeleteGroupsResponse()
        respond = partial(self._delete_all, list(names))
        coordinator = partial(self._coordinator, client)
        return respond_in_slices(self._time_slicer, names, coordinator, respond)

    def _delete_all(
        self, names: list[str], coordinators: list[GroupCoordinator | RequestError]
    ) -> HandlerResponse:
        results = [DeletableGroupResult(group_id=group_id) for group_id in names]
        response = _DeleteGroupsResponse(results)

        def delete(pair: tuple[DeletableGroupResult, GroupCoordinator | RequestError]) -> None:
            result, coordinator = pair
            if isinstance(coordinator, GroupCoordinator):
                coordinator.delete(result.group_id, response.on_deleted(result))
            else:
                response.complete_one(result, coordinator.error)

        pairs = zip(results, coordinators, strict=True)
        return respond_in_slices(self._time_slicer, pairs, delete, lambda _: response)

    def _coordinator(self, client: ClientContext, group_id: str) -> GroupCoordinator | RequestError:
        """The coordinator of a group, or its error."""
        if not self._access.allows(client, AclOperation.DELETE, AclResourceType.GROUP, group_id):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return RequestError(error, error.message)
        try:
            return self._groups.coordinator(group_id)
        except RequestError as rejection:
            return rejection


class _DeleteGroupsResponse(PendingResponse):
    """One result for each group."""

    __slots__ = ("_pending", "_results")

    def __init__(self, results: list[DeletableGroupResult]) -> None:
        super().__init__()
        self._results = results
        self._pending = len(results)

    def on_deleted(self, result: DeletableGroupResult) -> Callable[[ErrorCode], None]:
        """The callback of one group's deletion."""
        return lambda error: self.complete_one(result, error)

    def complete_one(self, result: DeletableGroupResult, error: ErrorCode) -> None:
        result.error_code = error
        self._pending -= 1
        if self._pending == 0:
            self.complete(DeleteGroupsResponse(results=self._results))
