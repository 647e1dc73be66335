"""The consumer groups of one data log group that this node has a copy of: served while it leads there.

Owns: `HostedGroups`, a store and a coordinator that live as long as the copy, through any number of
leaderships. Invariants: a coordinator loads when all that was appended here or elsewhere before is replayed;
when the leadership is lost whoever waits is told NOT_COORDINATOR, and what is not committed is forgotten.
Does not: know which group belongs here (`groups.py`). Source: Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

import logging

from broker.groups.coordinator import GroupCoordinator
from broker.groups.store import GroupStore
from broker.refused import Refused
from protocol.errors import ErrorCode

log = logging.getLogger("lockstep.groups")


class HostedGroups:
    """Follows the leadership of the store's log group from when it is made until `leave`."""

    __slots__ = ("_leadership", "coordinator", "group", "store")

    def __init__(self, store: GroupStore, coordinator: GroupCoordinator) -> None:
        self.store = store
        self.group = store.group
        self.coordinator = coordinator
        self._leadership = 0
        """How often it has changed: what an earlier one waited for does not count."""
        self.group.on_leading.append(self._follow)
        if self.group.is_leader:
            self._follow(True)

    @property
    def serves(self) -> bool:
        """Is this node the coordinator, and knows all there is to know?"""
        return self.group.is_leader and self.coordinator.refusal is ErrorCode.NONE

    def require_lease(self) -> None:
        """Raises Refused where another node may be the coordinator by now."""
        group = self.group
        if not group.is_leader:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        if not group.has_lease:
            text = f"it is not certain that log group {group.group_id} is still led here"
            raise Refused(ErrorCode.NOT_COORDINATOR, text)

    def require_loaded(self) -> None:
        """Raises Refused where what is committed is not all known yet."""
        refusal = self.coordinator.refusal
        if refusal is not ErrorCode.NONE:
            raise Refused(refusal, f"the consumer groups of log group {self.group.group_id} are not served")

    def leave(self) -> None:
        """The copy goes: answer everybody who waits, and follow no more."""
        self.stop()
        self.store.resign()

    def stop(self) -> None:
        """The broker stops: answer who waits for others, not who waits for the log."""
        self._leadership += 1
        if self._follow in self.group.on_leading:
            self.group.on_leading.remove(self._follow)
        self.coordinator.resign()

    def _follow(self, leading: bool) -> None:
        self._leadership += 1
        if not leading:
            self.coordinator.resign()
            self.store.resign()
            return
        leadership = self._leadership
        self.coordinator.expect()

        def replayed(error: BaseException | None) -> None:
            if leadership == self._leadership and error is None:
                self.coordinator.load()

        # A leader that did not hand over after all may have entries that are not committed yet.
        self.group.when_committed(replayed)
