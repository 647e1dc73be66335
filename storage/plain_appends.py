"""Appends of plain batches to a log group: their only condition is room.

`LogGroup.append` is the specification: what has room here is appended by it in the same way. Invariants: no
error, and nothing changes where there is no room. Does not: validate a batch, or wait for its commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.applier import Applier
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.served_leadership import ServedLeadership

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup


class PlainAppends:
    """See the module."""

    __slots__ = ("_applier", "_group", "_leadership", "_log", "_max_uncommitted_bytes", "_open", "_raft")

    def __init__(
        self,
        group: LogGroup,
        leadership: ServedLeadership,
        open_frame: OpenFrame,
        applier: Applier,
        max_uncommitted_bytes: int,
    ) -> None:
        self._group, self._log, self._raft = group, group.log, group.raft
        self._leadership = leadership
        self._open = open_frame
        self._applier = applier
        self._max_uncommitted_bytes = max_uncommitted_bytes

    def has_room(self, size: int, record_count: int, batches: int) -> bool:
        """True if so many batches may be appended: the group is led here, they fit together into the open
        frame as it is, and exceed no limit."""
        open_frame = self._open
        if not self._leadership.is_serving or not open_frame.fits(size, record_count, batches):
            return False
        pending = open_frame.pending_bytes + size
        return (
            self._log.has_space_for(pending)
            and pending + self._applier.in_flight_bytes <= self._max_uncommitted_bytes
        )

    def append(
        self, partition: PartitionLog, batch: bytearray, record_count: int, crc: int, max_timestamp: int
    ) -> int:
        """Appends a validated batch without transaction, for which there is room; returns its base
        offset."""
        self._group.schedule_propose()
        leader_epoch = self._raft.term + partition.epoch_base
        return self._open.add_batch(partition, batch, record_count, crc, max_timestamp, leader_epoch)
