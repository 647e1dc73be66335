"""The consumer groups of one data log group that this node has a copy of: served while it leads there.

Owns: `GroupShard`, a store and a coordinator. Invariants: when the leadership is lost who waits for the
store gets its response, too. Does not: follow the leadership (`broker/coordination/coordinator_shard.py`).
"""

from __future__ import annotations

from lockstep.broker.coordination.coordinator_shard import CoordinatorShard
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_store import GroupStore


class GroupShard(CoordinatorShard[GroupCoordinator]):
    """Follows the leadership of the store's log group."""

    __slots__ = ("store",)

    def __init__(self, store: GroupStore, coordinator: GroupCoordinator) -> None:
        self.store = store
        super().__init__(store.group, coordinator, "consumer groups")

    def _forget(self) -> None:
        self.store.resign()
