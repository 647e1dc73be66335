"""The coordinator of one data log group that this node has a copy of: it serves while the node leads there.

Owns: `CoordinatorShard`, which lives as long as the copy, through any number of leaderships. Invariants: a
coordinator loads when all that was appended here or elsewhere before is replayed; when the leadership is lost
whoever waits is told NOT_COORDINATOR, and what is not committed is left to the next leader; nothing is said
where another node may have led when it was asked. A leader whose lease has lapsed, because it was held up
itself or heartbeats were lost, does not refuse: clients would rejoin, or give their transactions up. Whether
it still leads is found out first, which takes a heartbeat (`with_read_barrier`). Does not: know which key
belongs here (`coordinator_registry.py`). Source: Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup


class Coordinator(Protocol):
    """The calls of a shard to its coordinator."""

    @property
    def refusal(self) -> ErrorCode:
        """The error of all responses while it does not serve; NONE while it does."""

    def expect(self) -> None:
        """The leadership is here; what was appended before is not all replayed."""

    def load(self) -> None:
        """All is replayed: serve."""

    def resign(self) -> None:
        """The leadership is lost, or the broker stops: answer everybody who waits."""


C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")


class LeaseExpired(Exception):
    """Another node may be the coordinator by now, and nothing has been done: see `with_read_barrier`."""

    def __init__(self, hosted: CoordinatorShard[Any]) -> None:
        super().__init__(f"it is not certain that log group {hosted.group.group_id} is still led here")
        self.hosted = hosted


class CoordinatorShard(Generic[C]):
    """Follows the leadership of a log group from when it is made until `stop` or `leave`.

    Args: served: what the coordinator is asked for, in words.
    """

    __slots__ = ("_leadership", "_served", "coordinator", "group", "is_confirmed")

    def __init__(self, group: LogGroup, coordinator: C, served: str) -> None:
        self.group = group
        self.coordinator = coordinator
        self._served = served
        self.is_confirmed: bool | None = None
        """Of the request that is being served: whether this node still led when it came, where that was found
        out. None else."""
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
        """Raises RequestError where another node is the coordinator, LeaseExpired where that is to be found
        out."""
        group = self.group
        if not group.is_leader:
            raise RequestError(ErrorCode.NOT_COORDINATOR, f"log group {group.group_id} is not led here")
        if group.has_lease or self.is_confirmed:
            return
        uncertain = LeaseExpired(self)
        if self.is_confirmed is None:
            raise uncertain
        raise RequestError(ErrorCode.NOT_COORDINATOR, str(uncertain))

    def require(self) -> C:
        """The coordinator. Raises as `require_lease`, and RequestError where not all is known yet."""
        self.require_lease()
        refusal = self.coordinator.refusal
        if refusal is not ErrorCode.NONE:
            raise RequestError(
                refusal, f"the {self._served} of log group {self.group.group_id} are not served"
            )
        return self.coordinator

    def leave(self) -> None:
        """The copy goes: answer everybody who waits, and follow no more."""
        self.stop()
        self._forget()

    def stop(self) -> None:
        """The broker stops: the same, but who waits for the log still may."""
        self._leadership += 1
        if self._follow in self.group.on_leading:
            self.group.on_leading.remove(self._follow)
        self.coordinator.resign()

    def _forget(self) -> None:
        """Answer who waits for the log, where the coordinator itself does not."""

    def _follow(self, leading: bool) -> None:
        self._leadership += 1
        if not leading:
            self.coordinator.resign()
            self._forget()
            return
        leadership = self._leadership
        self.coordinator.expect()

        def on_replayed(error: BaseException | None) -> None:
            if leadership == self._leadership and error is None:
                self.coordinator.load()

        # Others, told of it earlier, may have appended already: that is to be replayed, too.
        self.group.when_committed(on_replayed)


async def with_read_barrier(serve: Callable[[], T]) -> T:
    """Returns what `serve` returns or raises; after LeaseExpired calls it again once the leadership is
    confirmed.

    What it says then is as certain as with a lease: nobody else led when this was called. Where it raises
    LeaseExpired it must have done nothing.
    """
    found: dict[CoordinatorShard[Any], bool] = {}
    while True:
        try:
            with _confirm(found):
                return serve()
        except LeaseExpired as uncertain:
            hosted = uncertain.hosted
        found[hosted] = await hosted.group.read_index.confirm_leadership()


@contextmanager
def _confirm(found: Mapping[CoordinatorShard[Any], bool]) -> Iterator[None]:
    for hosted, is_confirmed in found.items():
        hosted.is_confirmed = is_confirmed
    try:
        yield
    finally:
        for hosted in found:
            hosted.is_confirmed = None
