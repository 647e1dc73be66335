"""What is derived from a group's frames: its partitions, commit machines, tail machines; and their snapshots.

Tail machines follow the appended log, commit machines the committed one; a checkpoint has both as of one
frame, cut in two steps. Owns which machine a partition's batches are replayed into. Does no input or output.
Source: `docs/decisions/0002-tail-machines-and-commit-machines.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage.control_partition import ControlPartition
from storage.partition import PartitionLog
from storage.types import CONTROL_PARTITION, Buffer, CorruptLog, DirectoryEntry, Frame, StateMachine

CONTROL_SECTION = "partitions"
OFFSETS_SECTION = "offsets"

Sections = dict[str, bytes]


class DerivedState:
    """One group's partitions and machines.

    Args:
        commit_machines: topic id to (checkpoint section, machine).
        tail_machines: checkpoint section to machine.
    """

    __slots__ = ("_commit_machines", "_tail_machines", "control")

    def __init__(
        self,
        commit_machines: Mapping[bytes, tuple[str, StateMachine]],
        tail_machines: Mapping[str, StateMachine],
    ) -> None:
        self.control = ControlPartition()
        self._commit_machines = commit_machines
        self._tail_machines = tail_machines

    def restore(self, sections: Sections) -> None:
        """Take over a checkpoint; without sections everything is empty."""
        self.control.restore(sections.get(CONTROL_SECTION, b""))
        self.control.restore_offsets(sections.get(OFFSETS_SECTION, b""))
        for section, machine in (*self._commit_machines.values(), *self._tail_machines.items()):
            machine.restore(sections.get(section, b""))
        for partition in self.control.partitions.values():
            self._attach(partition)

    def replay(self, frame: Frame) -> None:
        """Apply a recovered frame, which is committed. Raises CorruptLog where it does not follow.

        With one voter whatever is on disk is committed by the next no-op, so it is applied at once.
        """
        for entry, payload in zip(frame.directory, frame.payloads, strict=True):
            partition = self.control.partitions.get(entry.partition)
            if partition is None:
                continue  # closed since: its records are dead
            if entry.base_offset != partition.next_offset:
                raise CorruptLog(
                    f"entry {frame.index}: partition {entry.partition} continues at {entry.base_offset}, "
                    f"expected {partition.next_offset}"
                )
            partition.note_epoch(entry.leader_epoch, entry.base_offset)
            partition.next_offset = partition.high_watermark = entry.base_offset + entry.record_count
            for machine in self._tail_machines.values():
                machine.replay(entry, payload, frame.time_ms)
            self.commit(partition, entry, payload, frame.time_ms)

    def commit(self, partition: PartitionLog, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one committed batch to its partition's machine, if it has one."""
        machine = partition.machine
        if machine is None:
            return
        known = self.control.next_number
        machine.replay(entry, payload, time_ms)
        for number in range(known, self.control.next_number):
            if number in self.control.partitions:
                self._attach(self.control.partitions[number])

    def cut(self, time_ms: int) -> Sections:
        """What follows the appended log, as of the last closed frame; no append may be open."""
        sections = {OFFSETS_SECTION: self.control.snapshot_offsets()}
        for section, machine in self._tail_machines.items():
            sections[section] = machine.snapshot(time_ms)
        return sections

    def complete(self, sections: Sections, time_ms: int) -> None:
        """Add what follows the commit to a cut, whose frame has just been committed."""
        sections[CONTROL_SECTION] = self.control.snapshot(time_ms)
        for section, machine in self._commit_machines.values():
            sections[section] = machine.snapshot(time_ms)

    def _attach(self, partition: PartitionLog) -> None:
        if partition.number == CONTROL_PARTITION:
            partition.machine = self.control
        elif partition.topic_id in self._commit_machines:
            partition.machine = self._commit_machines[partition.topic_id][1]
