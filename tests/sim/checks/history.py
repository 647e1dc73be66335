"""The one committed history of a group, as first seen on any node; every other node is held against it.

Owns `History`: the committed entries with their chain values and batches. Checks as it grows: LSNs are dense,
base offsets are dense within a partition, terms and leader epochs never go back, checksums are those of the
bytes. A chain value covers all headers and directories before it, so one comparison covers a whole prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.protocol.records.batch import BatchHeader, MalformedBatch, read_header, verify
from lockstep.protocol.records.record import key_values
from lockstep.storage.log.format import ENTRY_RAW, group_seed
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import CONTROL_PARTITION, DirectoryEntry, Frame, FrameKind
from tests.sim.faces import Check
from tests.sim.joining import GROUP_ID

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

READ_BYTES = 1 << 20


def group_of(node: Node) -> LogGroup:
    """The group of a node that has it open."""
    assert node.group is not None
    return node.group


@contextmanager
def unseen(world: World) -> Iterator[None]:
    """What a check reads from a disk takes no time and meets no fault, also within a node's turn."""
    current, world.current = world.current, None
    try:
        yield
    finally:
        world.current = current


class Batch:
    """One committed batch."""

    __slots__ = ("base_offset", "data", "directory", "header", "index", "next_offset", "partition")

    def __init__(self, index: int, directory: DirectoryEntry, data: bytes, header: BatchHeader) -> None:
        self.index = index
        self.partition = directory.partition
        self.base_offset = directory.base_offset
        self.next_offset = directory.base_offset + directory.record_count
        self.directory = directory
        self.header = header
        self.data = data


class Entry:
    """One committed frame."""

    __slots__ = ("batches", "chain", "frame", "term")

    def __init__(self, frame: Frame, chain: int, batches: list[Batch]) -> None:
        self.frame = frame
        self.term = frame.term
        self.chain = chain
        self.batches = batches


class History(Check):
    """See the module. `entries[i]` is the entry at index i + 1. One per world: `History.of`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.entries: list[Entry] = []
        self.committed_in: list[int] = []
        """The term of the member that first knew of each entry's commit: not before that was it committed.
        As long as `entries` whenever a listener is called."""
        self.batches: dict[int, list[Batch]] = {}
        """By partition number, in offset order."""
        self.topic_ids: dict[int, bytes] = {}
        """By partition number: what it was opened for."""
        self.log_starts: dict[int, int] = {}
        """By partition number: the highest log start that is committed; without end once it is closed."""
        self.listeners: list[Callable[[Entry], None]] = []
        """Called with each entry, once, when the first node commits it."""
        self._next_lsn = 1
        self._commits: dict[Node, int] = {}

    @classmethod
    def of(cls, world: World) -> History:
        """The world's history; made by whoever asks first."""
        made = world.shared.get("history")
        if not isinstance(made, cls):
            made = world.shared["history"] = cls(world)
        return made

    @property
    def last_index(self) -> int:
        return len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else 0

    def chain_at(self, index: int) -> int:
        """The chain value after an entry; that of the empty log at 0."""
        return self.entries[index - 1].chain if index else group_seed(GROUP_ID)

    def next_offset(self, partition: int) -> int:
        """Where a partition's committed batches end."""
        batches = self.batches.get(partition)
        return batches[-1].next_offset if batches else 0

    def first_at(self, partition: int, timestamp_ms: int, start: int, end: int) -> int | None:
        """The first batch with a record that new or newer from `start` up to `end`; None for none."""
        for batch in self.batches.get(partition, []):
            inside = batch.next_offset > start and batch.base_offset < end
            if inside and batch.header.max_timestamp >= timestamp_ms:
                return batch.base_offset
        return None

    def holds(self, node: Node, index: int) -> bool:
        """Does the node's log have the history's entry at an index? True where it cannot say any more."""
        group = group_of(node)
        if node.damaged:  # what has rotted on its disk is no part of what it knows
            term = group.raft.terms.term_at(index)
            return index <= group.raft.last_index and term in (None, self.entries[index - 1].term)
        found = group.log.chain_at(index)
        if found is None:
            return index <= group.raft.last_index
        return found == self.chain_at(index)

    # --- told by the world --------------------------------------------------------------------------------

    def opened(self, node: Node) -> None:
        """What a node finds on its disk below the commit must be the history."""
        self._commits.pop(node, None)
        self.changed(node)

    def crashed(self, node: Node, how: str) -> None:
        self._commits.pop(node, None)

    def changed(self, node: Node) -> None:
        """Take in what a node has committed since it was last looked at."""
        group = group_of(node)
        if group.failed is not None:
            return  # what it holds in memory counts for nothing any more
        raft = group.raft
        commit = raft.commit_index
        before = self._commits.get(node, 0)
        if commit == before:
            return
        if commit < before:
            self.world.violate("commit goes back", f"{node}: from {before} to {commit} in one life")
        self._commits[node] = commit
        if commit > raft.last_index:
            text = f"{node}: {commit}, its log ends at {raft.last_index}"
            self.world.violate("commit beyond the log", text)
        with unseen(self.world):
            if commit > self.last_index:
                self._extend(node, commit)
            self._compare(node, commit)

    # --- private ------------------------------------------------------------------------------------------

    def _compare(self, node: Node, index: int) -> None:
        if self.holds(node, index):
            return
        first = next(i for i in range(1, index + 1) if not self.holds(node, i))
        found = group_of(node).log.chain_at(first)
        self.world.violate(
            "log matching",
            f"{node} has committed {index}; its entry {first} has chain value {found}, "
            f"the history's {self.chain_at(first)}, of term {self.entries[first - 1].term}",
        )

    def _extend(self, node: Node, commit: int) -> None:
        first = self.last_index + 1
        if not self.holds(node, self.last_index):
            self._compare(node, self.last_index)
        log = group_of(node).log
        while first <= commit:
            frames = log.frames(first, READ_BYTES)
            if frames is None:
                frames = log.frames_cold(first, READ_BYTES)
            for frame in frames:
                if first == frame.index <= commit:
                    self._take(node, frame)
                    first += 1
            if not frames or first != self.last_index + 1:
                text = f"{node} has committed {commit} and cannot show entry {first}"
                self.world.violate("history", text)

    def _take(self, node: Node, frame: Frame) -> None:
        chain = group_of(node).log.chain_at(frame.index)
        if chain is None:
            self.world.violate("history", f"{node} does not know the chain value of entry {frame.index}")
        if frame.term < self.last_term:
            text = f"entry {frame.index} has term {frame.term} after {self.last_term}"
            self.world.violate("terms go back", text)
        if frame.first_lsn != self._next_lsn:
            text = f"entry {frame.index} begins at LSN {frame.first_lsn}, expected {self._next_lsn}"
            self.world.violate("LSNs are dense", text)
        records = sum(each.record_count for each in frame.directory)
        if records != frame.record_count or (frame.kind is not FrameKind.DATA and records):
            text = f"entry {frame.index} ({frame.kind.name}) says {frame.record_count} records, has {records}"
            self.world.violate("LSNs are dense", text)
        self._next_lsn = frame.first_lsn + frame.record_count
        batches = [
            self._batch(frame, directory, bytes(payload))
            for directory, payload in zip(frame.directory, frame.payloads, strict=True)
            if not directory.flags & ENTRY_RAW
        ]
        assert chain is not None
        entry = Entry(frame, chain, batches)
        self.committed_in.append(group_of(node).raft.term)
        self.entries.append(entry)
        for listener in self.listeners:
            listener(entry)

    def _batch(self, frame: Frame, directory: DirectoryEntry, data: bytes) -> Batch:
        where = f"entry {frame.index}, partition {directory.partition} offset {directory.base_offset}"
        try:
            header = read_header(data)
            verify(data, 0, header)
        except MalformedBatch as error:
            self.world.violate("bytes", f"{where}: {error}")
            raise
        if (header.base_offset, header.record_count, header.crc, header.leader_epoch, len(data)) != (
            directory.base_offset,
            directory.record_count,
            directory.crc,
            directory.leader_epoch,
            directory.length,
        ):
            self.world.violate("bytes", f"{where}: the batch says {header}, the directory {directory}")
        known = self.batches.setdefault(directory.partition, [])
        expected = known[-1].next_offset if known else 0
        if directory.base_offset != expected:
            self.world.violate("offsets are dense", f"{where}: expected {expected}")
        if known and header.leader_epoch < known[-1].header.leader_epoch:
            self.world.violate("leader epochs go back", f"{where}: {header.leader_epoch}")
        batch = Batch(frame.index, directory, data, header)
        known.append(batch)
        if directory.partition == CONTROL_PARTITION:
            self._opened(data)
        return batch

    def _opened(self, data: bytes) -> None:
        for _, value in key_values(data):
            match json.loads(value or b"{}"):
                case {"do": "open", "partition": int(number), "topic_id": str(topic_id)}:
                    self.topic_ids[number] = bytes.fromhex(topic_id)
                case {"do": "log_start", "partition": int(number), "offset": int(offset)}:
                    self.log_starts[number] = max(self.log_starts.get(number, 0), offset)
                case {"do": "close", "partition": int(number)}:
                    self.log_starts[number] = 1 << 63
