"""Every state machine is what a replay of the one history gives: live on each node, and in each checkpoint.

Commit machines are compared as of the applied entry; tail machines and the offsets of partitions only where
a node has nothing uncommitted. Comparing costs a snapshot, so it is done every few entries. Checkpoints are
read back from the disk. Forms that are compared do not depend on the order of tables, nor on producers of
closed partitions and leader epochs below log starts, which each node forgets when it likes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.metadata.metadata_image import MetadataImage
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.storage import aborted_transactions
from lockstep.storage.aborted_transactions import ENTRY_IN_TRANSACTION
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.log.format import ENTRY_NOTES
from lockstep.storage.partition import PartitionLog
from lockstep.storage.state_machines import CONTROL_SECTION, OFFSETS_SECTION, TRANSACTIONS_SECTION
from lockstep.storage.types import CONTROL_PARTITION, StateMachine
from tests.sim.checks.history import Entry, History, group_of, unseen
from tests.sim.faces import Check, Machines

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

EVERY = 16
"""Entries between two comparisons of one node."""
KEPT_EVERY = 64
"""Entries between two states of the replay that it can go back to."""


class Replay:
    """A state that is made from the history alone, by the machines' own `replay`."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.control = ControlPartition()
        self.index = 0
        self.time_ms = 0
        self._attach(self.control.partitions[CONTROL_PARTITION])

    def apply(self, entry: Entry) -> None:
        """The next entry."""
        self.index, self.time_ms = entry.frame.index, entry.frame.time_ms
        for batch in entry.batches:
            partition = self.control.partitions.get(batch.partition)
            if partition is None:
                continue
            partition.note_epoch(batch.directory.leader_epoch, batch.base_offset)
            partition.next_offset = partition.high_watermark = batch.next_offset
            if batch.directory.flags & ENTRY_IN_TRANSACTION:
                partition.apply_transaction_batch(batch.directory, batch.data)
            for machine in self.machines.tail.values():
                machine.replay(batch.directory, batch.data, self.time_ms)
            if partition.machine is not None:
                partition.machine.replay(batch.directory, batch.data, self.time_ms)
                for each in self.control.partitions.values():
                    self._attach(each)
        for directory, payload in zip(entry.frame.directory, entry.frame.payloads, strict=True):
            if directory.flags & ENTRY_NOTES:
                for machine in self.machines.tail.values():
                    machine.replay(directory, payload, self.time_ms)

    def _attach(self, partition: PartitionLog) -> None:
        if partition.local_id == CONTROL_PARTITION:
            partition.machine = self.control
        elif partition.topic_id in self.machines.commit:
            partition.machine = self.machines.commit[partition.topic_id][1]

    def sections(self) -> dict[str, bytes]:
        """Everything, as a checkpoint has it."""
        found = {
            CONTROL_SECTION: self.control.snapshot(self.time_ms),
            OFFSETS_SECTION: self.control.snapshot_offsets(),
            TRANSACTIONS_SECTION: aborted_transactions.snapshot(self.control.partitions),
        }
        for section, machine in sections_of(self.machines).items():
            found[section] = machine.snapshot(self.time_ms)
        return found

    def restore(self, index: int, time_ms: int, sections: dict[str, bytes]) -> None:
        self.index, self.time_ms = index, time_ms
        self.control = ControlPartition()  # a restored one keeps what it had of its partitions
        self.control.restore(sections[CONTROL_SECTION])
        self.control.restore_offsets(sections[OFFSETS_SECTION])
        aborted_transactions.restore(self.control.partitions, sections[TRANSACTIONS_SECTION])
        for section, machine in sections_of(self.machines).items():
            machine.restore(sections[section])
        for partition in self.control.partitions.values():
            partition.high_watermark = partition.next_offset
            self._attach(partition)


class MachineStates(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._replay: Replay | None = None
        self._kept: list[tuple[int, int, dict[str, bytes]]] = []
        self._compared: dict[Node, int] = {}
        self._checkpoints: dict[Node, int] = {}

    def opened(self, node: Node) -> None:
        """What a node has recovered is compared at once."""
        if self._replay is None:
            self._replay = Replay(self.world.workload.machines(node))
            self._kept.append((0, 0, self._replay.sections()))
        self._compared.pop(node, None)
        self._checkpoints[node] = 0
        self.changed(node)

    def changed(self, node: Node) -> None:
        """Compare a node's machines now and then, and every checkpoint it has written."""
        group = group_of(node)
        if group.failed is not None:
            return
        if group.checkpoint_index != self._checkpoints[node]:
            self._checkpoints[node] = group.checkpoint_index
            self._compare_checkpoint(node)
        applied = group.applied_index
        if applied <= self._history.last_index and applied >= self._compared.get(node, -EVERY) + EVERY:
            self._compared[node] = applied
            self._compare(node)

    def finished(self) -> None:
        for node in self.world.running():
            self._compare(node)

    # --- private ------------------------------------------------------------------------------------------

    def _at(self, index: int) -> Replay:
        """The replay's state as of an entry."""
        replay = self._replay
        assert replay is not None
        if index < replay.index:
            kept = max((each for each in self._kept if each[0] <= index), key=lambda each: each[0])
            replay.restore(*kept)
        while replay.index < index:
            replay.apply(self._history.entries[replay.index])
            if replay.index >= self._kept[-1][0] + KEPT_EVERY:
                self._kept.append((replay.index, replay.time_ms, replay.sections()))
        return replay

    def _compare(self, node: Node) -> None:
        group = group_of(node)
        replay = self._at(group.applied_index)
        quiet = all(each.next_offset == each.high_watermark for each in group.partitions.values())
        expected = replay.control.partitions
        if sorted(expected) != sorted(group.partitions):
            self._differs(node, "open partitions", sorted(group.partitions), sorted(expected))
        for number, partition in group.partitions.items():
            start = self._highest_start(number, partition.log_start_offset)
            found, wanted = _places(partition, quiet, start), _places(expected[number], quiet, start)
            if found != wanted:
                self._differs(node, f"partition {number}", found, wanted)
            self._compare_transactions(node, partition, expected[number])
            starts = partition.log_start_offset, expected[number].log_start_offset
            if number != CONTROL_PARTITION and not self._may_start(number, *starts):
                self._differs(node, f"log start of partition {number}", *starts)
        still = frozenset(expected)
        own, right = sections_of(node.machines), sections_of(replay.machines)
        tails = node.machines.tail
        for section, machine in own.items():
            if section in tails and not quiet:
                continue
            there = form(machine, still, replay.time_ms)
            wanted_form = form(right[section], still, replay.time_ms)
            if there != wanted_form:
                self._differs(node, section, there, wanted_form)

    def _compare_transactions(self, node: Node, found: PartitionLog, expected: PartitionLog) -> None:
        """Those that a reader may still meet: what lies below log starts is forgotten when it may be."""
        start = self._history.log_starts.get(found.local_id, 0)
        there, wanted = _transactions(found, start), _transactions(expected, start)
        if there != wanted:
            self._differs(node, f"transactions of partition {found.local_id}", there, wanted)

    def _compare_checkpoint(self, node: Node) -> None:
        with unseen(self.world):
            checkpoint = group_of(node).log.load_checkpoint()
        if checkpoint is None:
            self.world.violate("checkpoints", f"{node} says {group_of(node).checkpoint_index}, there is none")
            return
        index = checkpoint.index
        if index > self._history.last_index:
            text = f"{node} has one of entry {index}, committed is {self._history.last_index}"
            self.world.violate("checkpoints", text)
        entry = self._history.entries[index - 1]
        if (checkpoint.term, checkpoint.chain) != (entry.term, entry.chain):
            text = (
                f"{node}: entry {index} has term {entry.term} and chain value {entry.chain}, its checkpoint "
            )
            self.world.violate("checkpoints", text + f"{checkpoint.term} and {checkpoint.chain}")
        replay = self._at(index)
        still = frozenset(replay.control.partitions)
        right = sections_of(replay.machines)
        for section, data in replay.sections().items():
            if section not in checkpoint.sections:
                self._differs(node, f"checkpoint {index}, {section}", "absent", "there")
            found, wanted = checkpoint.sections[section], data
            if section == TRANSACTIONS_SECTION:
                self._compare_restored(node, found, replay)
                continue
            if section in right:
                there: object = form(_restored(right[section], found), still, replay.time_ms)
                expected: object = form(_restored(right[section], wanted), still, replay.time_ms)
            elif section == CONTROL_SECTION:
                there, expected = self._of_partitions(found, wanted), json.loads(wanted)
            else:  # partitions that were closed between the cut and its commit are passed over
                control = json.loads(checkpoint.sections[CONTROL_SECTION])
                starts = {row[0]: row[4] for row in control["partitions"]}
                there, expected = self._of_offsets(found, starts), self._of_offsets(wanted, starts)
            if there != expected:
                self._differs(node, f"checkpoint {index}, {section}", there, expected)

    def _compare_restored(self, node: Node, data: bytes, replay: Replay) -> None:
        """The transactions in a checkpoint."""
        restored = {number: PartitionLog(number, bytes(16), 0) for number in replay.control.partitions}
        aborted_transactions.restore(restored, data)
        for number, partition in restored.items():
            self._compare_transactions(node, partition, replay.control.partitions[number])

    def _may_start(self, number: int, found: int, expected: int) -> bool:
        """A log start may be ahead of what is applied: files are freed before the next checkpoint says so."""
        return expected <= found <= self._history.log_starts.get(number, 0) or found == expected

    def _highest_start(self, number: int, own: int) -> int:
        """The highest log start that a node can know, by which it may have forgotten what lies below."""
        return max(own, self._history.log_starts.get(number, 0))

    def _of_offsets(self, data: bytes, own_starts: dict[int, int]) -> object:
        """The offsets section as far as nodes must agree; `own_starts` are of the partitions still open."""
        return sorted(
            [number, next_offset, kept_epochs(epochs, self._highest_start(number, own_starts[number]))]
            for number, next_offset, epochs in json.loads(data)
            if number in own_starts
        )

    def _of_partitions(self, found: bytes, wanted: bytes) -> object:
        """The control section as the replay has it, where log starts that differ are such as may be."""
        there, expected = json.loads(found), json.loads(wanted)
        starts = {row[0]: row[4] for row in expected["partitions"]}
        for row in there["partitions"]:
            right = starts.get(row[0], row[4])
            # The control partition's own log starts where a node's files begin.
            if row[0] == CONTROL_PARTITION or self._may_start(row[0], row[4], right):
                row[4] = right
        return there

    def _differs(self, node: Node, what: str, found: object, expected: object) -> None:
        at = group_of(node).applied_index
        text = f"{node} at entry {at}, {what}: {found}, the history gives {expected}"
        self.world.violate("machines", text[:2000])


def sections_of(machines: Machines) -> dict[str, StateMachine]:
    """Every machine by its section of a checkpoint."""
    return {**dict(machines.commit.values()), **machines.tail}


def _places(partition: PartitionLog, quiet: bool, start: int) -> tuple[object, ...]:
    places = (partition.topic_id, partition.index, partition.high_watermark)
    return (*places, kept_epochs(partition.leader_epochs, start)) if quiet else places


def kept_epochs(epochs: Sequence[Sequence[int]], start: int) -> list[tuple[int, ...]]:
    """The (epoch, first offset) that each node has: older ones than that of the record before a log start
    it forgets when it likes."""
    older = [offset < start for _, offset in epochs].count(True) - 1
    return [tuple(each) for each in epochs[max(0, older) :]]


def _transactions(partition: PartitionLog, start: int) -> object:
    found = partition.transactions
    if found is None:
        return {}, []
    return found.open, [each for each in found.aborted if each.last_offset >= start]


def _restored(like: StateMachine, data: bytes) -> StateMachine:
    if isinstance(like, ProducerState):
        made: StateMachine = ProducerState(like.expiration_ms)
    else:
        made = type(like)()
    made.restore(data)
    return made


def form(machine: StateMachine, open_numbers: frozenset[int], time_ms: int) -> object:
    """A machine's state in a form to compare; reads only, where `snapshot` may forget what has expired."""
    if isinstance(machine, ProducerState):
        oldest = time_ms - machine.expiration_ms
        return {
            (number, producer_id): (
                (each.producer_epoch, each.last_sequence, tuple(each.batches)),
                (each.coordinator_epoch, each.open_at, each.ended_at),
            )
            for number, producers in machine._partitions.items()
            if number in open_numbers
            for producer_id, each in producers.items()
            if each.last_time_ms >= oldest or each.is_open
        }
    if isinstance(machine, GroupsState):
        return machine._groups, machine._offsets, machine._topics
    if isinstance(machine, MetadataImage):
        return json.loads(machine.snapshot(time_ms))
    return machine.snapshot(time_ms)
