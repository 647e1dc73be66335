"""The state machines of a log group: partitions, commit machines, tail machines; and their snapshots.

Tail machines replay the appended log; commit machines, and the partitions' transactions, the committed one. A
checkpoint has both as of one frame, in two steps. A tail machine's state is speculative: after a truncation
it is rebuilt from a checkpoint and the frames above it. Owns which machine a partition's batches are replayed
into. Does no input or output. Source: `docs/decisions/0002-tail-machines-and-commit-machines.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.storage import aborted_transactions
from lockstep.storage.aborted_transactions import ENTRY_IN_TRANSACTION
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.log.batch_runs import batches_of, runs_of
from lockstep.storage.log.format import ENTRY_NOTES, ENTRY_RAW
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import (
    CONTROL_PARTITION,
    Buffer,
    CorruptLog,
    DirectoryEntry,
    EntryFields,
    Frame,
    RunMachine,
    StateMachine,
)

CONTROL_SECTION = "partitions"
OFFSETS_SECTION = "offsets"
TRANSACTIONS_SECTION = "transactions"

Sections = dict[str, bytes]


class StateMachines:
    """One group's partitions and machines.

    Args:
        commit_machines: topic id to (checkpoint section, machine).
        tail_machines: checkpoint section to machine.
    """

    __slots__ = (
        "_commit_machines",
        "_run_machines",
        "_tail_machines",
        "_take_runs",
        "_unopened",
        "applied_batches",
        "control",
    )

    def __init__(
        self,
        commit_machines: Mapping[bytes, tuple[str, StateMachine]],
        tail_machines: Mapping[str, StateMachine],
    ) -> None:
        self.control = ControlPartition()
        self._commit_machines = commit_machines
        self._tail_machines = tail_machines
        self._run_machines = tuple([each for each in tail_machines.values() if isinstance(each, RunMachine)])
        self._take_runs = len(self._run_machines) == len(tail_machines)
        """True if each tail machine takes runs."""
        self._unopened: dict[int, PartitionLog] = {}
        """Partitions with appended batches whose opening is appended too, but not committed yet."""
        self.applied_batches = 0
        """Since the last checkpoint: about the batches that a restart would replay."""

    def restore(self, sections: Sections) -> None:
        """Takes over a checkpoint; without sections everything is empty. Partitions keep their objects."""
        self._unopened = {}
        self.applied_batches = 0
        self.control.restore(sections.get(CONTROL_SECTION, b""))
        self.control.restore_offsets(sections.get(OFFSETS_SECTION, b""))
        aborted_transactions.restore(self.control.partitions, sections.get(TRANSACTIONS_SECTION, b""))
        for partition in self.control.partitions.values():
            partition.high_watermark = partition.next_offset
        for section, machine in (*self._commit_machines.values(), *self._tail_machines.items()):
            machine.restore(sections.get(section, b""))
        for partition in self.control.partitions.values():
            self._attach(partition)

    def restore_tail(self, sections: Sections) -> None:
        """Restores the tail machines and appended offsets from a checkpoint; committed state stays as it
        is."""
        self._unopened = {}
        for partition in self.control.partitions.values():
            partition.next_offset = 0
            partition.leader_epochs = []
        self.control.restore_offsets(sections.get(OFFSETS_SECTION, b""))
        for section, machine in self._tail_machines.items():
            machine.restore(sections.get(section, b""))

    def replay_appended(self, frame: Frame) -> None:
        """Replays an appended frame of another leader into offsets and tail machines.

        Raises CorruptLog where a batch does not continue its partition.
        """
        time_ms, body = frame.time_ms, frame.body
        entries: list[EntryFields] = []
        """Decoded once, where some batch is replayed by itself."""
        row = begin = 0
        for local_id, base, next_offset, count, length, leader_epoch, _, flags in runs_of(frame):
            first, row = row, row + count
            start, begin = begin, begin + length
            if flags & ENTRY_RAW:
                if flags & ENTRY_NOTES:
                    entries = entries or frame.entries
                    self._replay_batches(batches_of(frame, entries, first, count, start), time_ms)
                continue
            partition = self._appended_to(local_id)
            if partition is None:
                continue  # closed since: its records are dead
            if base != partition.next_offset:
                raise CorruptLog(
                    f"entry {frame.index}: partition {local_id} continues at {base}, "
                    f"expected {partition.next_offset}"
                )
            partition.note_epoch(leader_epoch, base)
            partition.next_offset = next_offset
            if flags or not self._take_runs:
                entries = entries or frame.entries
                self._replay_batches(batches_of(frame, entries, first, count, start), time_ms)
                continue
            payloads = frame.payloads[first:row] if body is None else (body[start:begin],)
            for machine in self._run_machines:
                machine.replay_run(local_id, payloads, time_ms)

    def _replay_batches(self, batches: Iterable[tuple[DirectoryEntry, Buffer]], time_ms: int) -> None:
        """Replays batches of a frame into the tail machines, one by one."""
        for entry, payload in batches:
            for machine in self._tail_machines.values():
                machine.replay(entry, payload, time_ms)

    def _appended_to(self, local_id: int) -> PartitionLog | None:
        partition = self.control.partitions.get(local_id) or self._unopened.get(local_id)
        if partition is None and local_id >= self.control.next_local_id:
            partition = self._unopened[local_id] = PartitionLog(local_id, b"", -1)
        return partition

    def apply_committed(self, frame: Frame, advanced: dict[PartitionLog, None]) -> None:
        """Applies a committed frame: high watermarks and commit machines; `advanced` gets its partitions."""
        partitions = self.control.partitions
        entries: list[EntryFields] = []
        row = begin = 0
        for local_id, _, next_offset, count, length, _, _, flags in runs_of(frame):
            first, row = row, row + count
            start, begin = begin, begin + length
            partition = partitions.get(local_id)
            if partition is None or flags & ENTRY_RAW:
                continue
            if flags & ENTRY_IN_TRANSACTION or partition.machine is not None:
                entries = entries or frame.entries
                for entry, payload in batches_of(frame, entries, first, count, start):
                    if flags & ENTRY_IN_TRANSACTION:
                        partition.apply_transaction_batch(entry, payload)
                    partition.high_watermark = entry.base_offset + entry.record_count
                    self.apply_batch(partition, entry, payload, frame.time_ms)
            partition.high_watermark = next_offset
            advanced[partition] = None
        self.applied_batches += row

    def apply_batch(
        self, partition: PartitionLog, entry: DirectoryEntry, payload: Buffer, time_ms: int
    ) -> None:
        """Apply one committed batch to its partition's machine, if it has one."""
        machine = partition.machine
        if machine is None:
            return
        known = self.control.next_local_id
        machine.replay(entry, payload, time_ms)
        for local_id in range(known, self.control.next_local_id):
            opened = self.control.partitions.get(local_id)
            early = self._unopened.pop(local_id, None)
            if opened is None:
                continue
            if early is not None:
                opened.next_offset, opened.leader_epochs = early.next_offset, early.leader_epochs
            self._attach(opened)

    def snapshot_appended(self, time_ms: int) -> Sections:
        """Returns the sections of the appended log, as of the last closed frame; no append may be open."""
        self.applied_batches = 0
        sections = {OFFSETS_SECTION: self.control.snapshot_offsets(self._unopened.values())}
        for section, machine in self._tail_machines.items():
            sections[section] = machine.snapshot(time_ms)
        return sections

    def add_committed(self, sections: Sections, time_ms: int) -> None:
        """Adds the committed state to the sections of `snapshot_appended`, whose frame was just committed."""
        sections[CONTROL_SECTION] = self.control.snapshot(time_ms)
        sections[TRANSACTIONS_SECTION] = aborted_transactions.snapshot(self.control.partitions)
        for section, machine in self._commit_machines.values():
            sections[section] = machine.snapshot(time_ms)

    def _attach(self, partition: PartitionLog) -> None:
        if partition.local_id == CONTROL_PARTITION:
            partition.machine = self.control
        elif partition.topic_id in self._commit_machines:
            partition.machine = self._commit_machines[partition.topic_id][1]
