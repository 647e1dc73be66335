"""What handlers of consumer groups use, without a broker: one coordinator and its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_groups import ListedGroup
from tests.broker.groups.fakes import FakeStore, World


class FakeGroups:
    """All groups have one coordinator; `error`: each lookup of a group fails with it."""

    def __init__(self) -> None:
        self.world = World(group_initial_rebalance_delay_ms="0")
        self.error = ErrorCode.NONE
        self.lookups: list[str] = []
        self.time_slicer = TimeSlicer(self.world.loop.call_soon)

    def __call__(self) -> GroupCoordinators:
        """The same as handlers take it."""
        return cast(GroupCoordinators, self)

    def coordinator(self, group_id: str) -> GroupCoordinator:
        self.lookups.append(group_id)
        if self.error is not ErrorCode.NONE:
            raise RequestError(self.error, "no coordinator")
        return self.world.coordinator

    def of(self, group_id: str) -> tuple[FakeStore, GroupCoordinator]:
        coordinator = self.coordinator(group_id)
        return self.world.store, coordinator

    def store(self, group_id: str) -> FakeStore:
        return self.of(group_id)[0]

    def listed(self) -> list[ListedGroup]:
        return self.coordinator("").listed()

    def lapsed_shards(self, keys: Sequence[str] = ()) -> list[Sequence[str]]:
        """Notes in its result what was asked."""
        return [keys]

    def partition_of(self, group_id: str) -> int:
        return 7

    def response(self, answer: Any) -> Any:
        """The message of a response, which may come in a later turn of the loop."""
        self.world.loop.turn()
        if not hasattr(answer, "done"):
            return answer
        assert answer.done, "there is no response yet"
        return answer.response
