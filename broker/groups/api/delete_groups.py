"""DeleteGroups: groups without members end, with all they committed (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, PendingResponse
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API_KEY = ApiKey.DELETE_GROUPS
VERSIONS = (0, 3)


def handle(context: ClientContext, header: RequestHeader, request: DeleteGroupsRequest) -> HandlerResponse:
    """Serve one DeleteGroups; the answer waits for the commits."""
    names = dict.fromkeys(request.groups_names)
    if not names:
        return DeleteGroupsResponse()
    coordinators = partial(_coordinator, context)
    return respond_in_slices(
        context, names, coordinators, lambda all_found: _delete_all(context, list(names), all_found)
    )


def _delete_all(
    context: ClientContext, names: list[str], coordinators: list[GroupCoordinator | RequestError]
) -> HandlerResponse:
    results = [DeletableGroupResult(group_id=group_id) for group_id in names]
    response = _DeleteGroupsResponse(results)

    def delete(pair: tuple[DeletableGroupResult, GroupCoordinator | RequestError]) -> None:
        result, coordinator = pair
        if isinstance(coordinator, GroupCoordinator):
            coordinator.delete(result.group_id, response.on_deleted(result))
        else:
            response.complete_one(result, coordinator.error)

    return respond_in_slices(context, zip(results, coordinators, strict=True), delete, lambda _: response)


def _coordinator(context: ClientContext, group_id: str) -> GroupCoordinator | RequestError:
    """The coordinator of a group, or its error; all are looked up before one is deleted, as each may need a
    read barrier."""
    try:
        return context.services.consumer_groups.coordinator(group_id)
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
