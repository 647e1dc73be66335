"""DeleteGroups: groups without members end, with all they committed (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable

from broker.context import Answer, ClientContext, Deferred
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
    results = {each: DeletableGroupResult(group_id=each) for each in request.groups_names}
    answer = _Answer(list(results.values()))
    for result in results.values():
        try:
            coordinator = context.services.groups.coordinator(result.group_id)
        except Refused as refused:
            answer.settle_one(result, refused.error)
        else:
            coordinator.delete(result.group_id, answer.settler(result))
    if not results:
        return DeleteGroupsResponse()
    return answer


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
