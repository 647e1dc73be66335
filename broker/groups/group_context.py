"""The shared context of one coordinator's groups: the log, limits, the loop, the response queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from lockstep.broker.groups.group_records import Record
from lockstep.broker.groups.group_responses import ResponseQueue
from lockstep.broker.groups.group_state import GroupsState
from lockstep.protocol.errors import ErrorCode

GROUP_BATCHES: Final = 16
"""Metadata one group may hold, in largest batches: the written part must fit one, and clients offer two
or three protocols of which one is written."""
MEMBERS_SHARE: Final = 1.25
"""The share of `lockstep.groups.max.bytes` up to which present members may grow."""


class GroupRecordStore(Protocol):
    """The store of group records; `store.GroupStore`."""

    @property
    def state(self) -> GroupsState: ...
    def append(self, group_id: str, records: list[Record], done: Callable[[ErrorCode], None]) -> None: ...
    def time_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of groups."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    max_total_bytes: int
    """Memory that all groups of a coordinator may take."""
    batch_bytes: Callable[[], int]
    """The largest batch of `__consumer_offsets` as that is configured now."""

    @property
    def max_group_bytes(self) -> int:
        """Metadata that the members of one group may bring."""
        return GROUP_BATCHES * self.batch_bytes()

    @property
    def max_record_bytes(self) -> int:
        """The limit of a generation's record, which must fit one batch, as in Kafka."""
        return self.batch_bytes()


G = TypeVar("G")


class GroupContext(Generic[G]):
    """The shared context of one coordinator's group rebalancers, of class G."""

    __slots__ = ("limits", "loop", "memory_bytes", "on_group_changed", "response_queue", "store")

    def __init__(
        self,
        store: GroupRecordStore,
        limits: GroupLimits,
        loop: asyncio.AbstractEventLoop,
        on_group_changed: Callable[[G], None],
    ) -> None:
        self.store = store
        self.limits = limits
        self.loop = loop
        self.response_queue = ResponseQueue(loop)
        self.on_group_changed = on_group_changed
        """Called after each change: the group may be idle now."""
        self.memory_bytes = 0
