"""The coordinator of one data log group of which this node has a replica; it serves while the node leads.

Owns: `CoordinatorShard`, which lives as long as the replica, over any number of leaderships. Invariants: a
coordinator loads once all earlier entries are replayed; when the leadership is lost pending requests fail
with NOT_COORDINATOR, and uncommitted entries are left to the next leader.
Does not: know which key belongs here (`coordinator_registry.py`), or check the lease: requests come after a
read barrier (`broker/requests/read_barrier.py`). Source: Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, Protocol, TypeVar

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup


class Coordinator(Protocol):
    """The calls of a shard to its coordinator."""

    @property
    def not_serving_error(self) -> ErrorCode:
        """The error of all responses while it does not serve; NONE while it does."""

    def prepare_load(self) -> None:
        """This node leads; earlier entries are not all replayed."""

    def load(self) -> None:
        """All is replayed: serves from now on."""

    def resign(self) -> None:
        """The leadership is lost, or the broker stops: fails all pending requests."""


C = TypeVar("C", bound=Coordinator)


class CoordinatorShard(Generic[C]):
    """Follows the leadership of a log group from when it is made until `stop` or `leave`.

    Args: served: the coordinated objects, in words.
    """

    __slots__ = ("_leadership", "_served", "coordinator", "group")

    def __init__(self, group: LogGroup, coordinator: C, served: str) -> None:
        self.group = group
        self.coordinator = coordinator
        self._served = served
        self._leadership = 0
        """The number of changes of leadership: callbacks of an earlier one are ignored."""
        self.group.on_leading.append(self._follow)
        if self.group.is_leader:
            self._follow(True)

    @property
    def serves(self) -> bool:
        """Returns whether this node is the coordinator, and has loaded."""
        return self.group.is_leader and self.coordinator.not_serving_error is ErrorCode.NONE

    @property
    def is_lapsed(self) -> bool:
        """True where this node leads without a lease: another one may lead by now."""
        return self.group.is_leader and not self.group.has_lease

    def confirm(self) -> Awaitable[bool]:
        """Resolves to True where no other node led at the call; to False once the leadership has ended."""
        return self.group.read_index.confirm_leadership()

    def require(self) -> C:
        """Returns the coordinator. Raises RequestError where this node does not lead, or has not loaded
        yet."""
        group = self.group
        if not group.is_leader:
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        not_serving_error = self.coordinator.not_serving_error
        if not_serving_error is not ErrorCode.NONE:
            raise RequestError(
                not_serving_error, f"the {self._served} of log group {self.group.group_id} are not served"
            )
        return self.coordinator

    def leave(self) -> None:
        """The replica is removed: fails all pending requests, and ignores later leaderships."""
        self.stop()
        self._forget()

    def stop(self) -> None:
        """The broker stops: the same, but waits for commits continue."""
        self._leadership += 1
        if self._follow in self.group.on_leading:
            self.group.on_leading.remove(self._follow)
        self.coordinator.resign()

    def _forget(self) -> None:
        """Fails requests that wait for a commit, where the coordinator itself does not."""

    def _follow(self, leading: bool) -> None:
        self._leadership += 1
        if not leading:
            self.coordinator.resign()
            self._forget()
            return
        leadership = self._leadership
        self.coordinator.prepare_load()

        def on_replayed(error: BaseException | None) -> None:
            if leadership == self._leadership and error is None:
                self.coordinator.load()

        # Other listeners may have appended already in this leadership: those entries are replayed, too.
        self.group.when_committed(on_replayed)
