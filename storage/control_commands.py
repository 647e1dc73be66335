"""A log group's own commands about its partitions: which are opened, closed, and where their logs start.

The leader commits each as records of the control partition; all members apply them (`control_partition`).
Owns the next free local id while this member leads. Does not: decide what is opened or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lockstep.storage import control_partition as control
from lockstep.storage.partition import PartitionLog
from lockstep.storage.served_leadership import ServedLeadership
from lockstep.storage.types import CONTROL_PARTITION, NotLeader

COMMANDS_PER_BATCH = 1000
"""A batch of some 130 bytes for each command must fit a frame of the smallest segments."""


class AppendValues(Protocol):
    """`LogGroup.append_values`."""

    async def __call__(self, partition: PartitionLog, values: Sequence[bytes]) -> None: ...


class ControlCommands:
    """See the module. Its methods raise as `LogGroup.append`."""

    __slots__ = ("_append_values", "_control", "_leadership", "_next_number")

    def __init__(
        self, state: control.ControlPartition, leadership: ServedLeadership, append_values: AppendValues
    ) -> None:
        self._control = state
        self._leadership = leadership
        self._append_values = append_values
        self._next_number = state.next_local_id

    def reset(self) -> None:
        """Begins with the next local id that the applied commands leave free."""
        self._next_number = self._control.next_local_id

    async def open_partitions(self, partitions: Sequence[tuple[bytes, int]]) -> list[PartitionLog]:
        """Opens a partition for each (topic id, partition index), in order."""
        first = self._next_number
        self._next_number += len(partitions)
        commands = [
            control.open_command(first + number, topic_id, index, 0)
            for number, (topic_id, index) in enumerate(partitions)
        ]
        await self._command(commands)
        return [self._control.partitions[first + number] for number in range(len(partitions))]

    async def close_partitions(self, local_ids: Sequence[int]) -> None:
        """Closes partitions permanently; their records are deleted."""
        await self._command([control.close_command(local_id) for local_id in local_ids])

    async def advance_log_starts(self, offsets: Mapping[int, int]) -> None:
        """Deletes the records of each partition below its offset.

        Raises ValueError for an offset above the high watermark.
        """
        for local_id, offset in offsets.items():
            if offset > self._control.partitions[local_id].high_watermark:
                raise ValueError(f"offset {offset} of partition {local_id} is not committed")
        await self._command([control.log_start_command(n, offset) for n, offset in offsets.items()])

    async def _command(self, commands: Sequence[control.Command]) -> None:
        """Commits commands in order, in as many batches as they need, all under one leadership: their
        premises (which numbers are free, for one) hold for no longer."""
        leadership = self._leadership.leadership_count
        for first in range(0, len(commands), COMMANDS_PER_BATCH):
            if leadership != self._leadership.leadership_count:
                raise NotLeader(f"group {self._leadership.group_id} was not led here all the time")
            values = [control.encode_command(each) for each in commands[first : first + COMMANDS_PER_BATCH]]
            await self._append_values(self._control.partitions[CONTROL_PARTITION], values)
