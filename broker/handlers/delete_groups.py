"""DeleteGroups: groups without members end, with all they committed (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable

from broker.context import Answer, ClientContext, Deferred
from broker.groups.coordinator import GroupCoordinator
from broker.refused import Refused
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API_KEY = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)


def handle(context: ClientContext, header: RequestHeader, request: DeleteGroupsRequest) -> Answer:
    """Serve one DeleteGroups; the answer waits for the commits."""
    asked = {group_id: _coordinator(context, group_id) for group_id in request.groups_names}
    if not asked:
        return DeleteGroupsResponse()
    results = [DeletableGroupResult(group_id=group_id) for group_id in asked]
    answer = _Answer(results)
    for result, found in zip(results, asked.values(), strict=True):
        if isinstance(found, GroupCoordinator):
            found.delete(result.group_id, answer.settler(result))
        else:
            answer.settle_one(result, found.error)
    return answer


def _coordinator(context: ClientContext, group_id: str) -> GroupCoordinator | Refused:
    """Of every group before one is deleted: where it is not certain who coordinates nothing may be done."""
    try:
        return context.services.groups.coordinator(group_id)
    except Refused as refused:
        return refused


class _Answer(Deferred):
    """One result for each group."""

    __slots__ = ("_pending", "_results")

    def __init__(self, results: list[DeletableGroupResult]) -> None:
        super().__init__()
        self._results = results
        self._pending = len(results)

    def settler(self, result: DeletableGroupResult) -> Callable[[ErrorCode], None]:
        """Whom to tell what became of one group."""
        return lambda error: self.settle_one(result, error)

    def settle_one(self, result: DeletableGroupResult, error: ErrorCode) -> None:
        result.error_code = error
        self._pending -= 1
        if self._pending == 0:
            self.complete(DeleteGroupsResponse(results=self._results))
