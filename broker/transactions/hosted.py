"""The transactional ids of one data log group that this node has a copy of: served while it leads there.

Owns: `HostedTransactions`, a coordinator that lives as long as the copy, through any number of leaderships.
Invariants: it loads when all that was appended here or elsewhere before is replayed; when the leadership is
lost whoever waits is told NOT_COORDINATOR, and what is half done is left to the next leader.
Does not: know which id belongs here (`transactions.py`). Source: as `broker/groups/hosted.py`.
"""

from __future__ import annotations

from broker.refused import Refused
from broker.transactions.coordinator import TransactionCoordinator
from protocol.errors import ErrorCode


class HostedTransactions:
    """Follows the leadership of the coordinator's log group from when it is made until `stop`."""

    __slots__ = ("_leadership", "coordinator", "group")

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator
        self.group = coordinator.group
        self._leadership = 0
        """How often it has changed: what an earlier one waited for does not count."""
        self.group.on_leading.append(self._follow)
        if self.group.is_leader:
            self._follow(True)

    @property
    def serves(self) -> bool:
        """Is this node the coordinator, and knows all there is to know?"""
        return self.group.is_leader and self.coordinator.refusal is ErrorCode.NONE

    def require(self) -> TransactionCoordinator:
        """The coordinator. Raises Refused where another node may be that by now, or not all is known yet."""
        group, refusal = self.group, self.coordinator.refusal
        if not group.is_leader:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        if not group.has_lease:
            text = f"it is not certain that log group {group.group_id} is still led here"
            raise Refused(ErrorCode.NOT_COORDINATOR, text)
        if refusal is not ErrorCode.NONE:
            raise Refused(refusal, f"the transactions of log group {group.group_id} are not served")
        return self.coordinator

    def stop(self) -> None:
        """The copy goes, or the broker stops: answer everybody who waits, and follow no more."""
        self._leadership += 1
        if self._follow in self.group.on_leading:
            self.group.on_leading.remove(self._follow)
        self.coordinator.resign()

    def _follow(self, leading: bool) -> None:
        self._leadership += 1
        if not leading:
            self.coordinator.resign()
            return
        leadership = self._leadership
        self.coordinator.expect()

        def replayed(error: BaseException | None) -> None:
            if leadership == self._leadership and error is None:
                self.coordinator.load()

        # A leader that did not hand over after all may have entries that are not committed yet.
        self.group.when_committed(replayed)
