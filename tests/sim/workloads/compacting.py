"""The `compacting` workload: keyed records, and a cleaner on every node that runs at its own times.

Owns the rule: whoever reads a partition on any node finds the last value of every key, whatever the node
has cleaned, shipped, installed or lost meanwhile; and nothing that was not written at that very offset. Rot
is left out: a segment repaired from a node that has not cleaned it for longer than tombstones stay is a
stated limit (docs/decisions/0022-compaction.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from lockstep.protocol.records.batch import iter_headers, read_header
from lockstep.protocol.records.record import BatchBuilder, Record, iter_records
from lockstep.storage.aborted_transactions import AbortedTransactions
from lockstep.storage.compaction_pass import CompactionTarget
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CorruptLog, StorageError
from tests.sim.checks.history import History, group_of, unseen
from tests.sim.faces import Unanswered, Workload
from tests.sim.workloads.asking import (
    BACKOFF_S,
    Elsewhere,
    Finder,
    InDoubt,
    at_rest,
    commit,
    must_lead,
    on_node,
    run_commands,
    until,
)
from tests.sim.workloads.consuming import is_whole

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

TOPIC_ID: Final = bytes(15) + b"c"
KEYS: Final = 25
CLEAN_S: Final = 1.5
SEAL_ONE_IN: Final = 3
"""Passes that have the file that is written to sealed first."""
SEAL_S: Final = 1.0
DELETE_RETENTION_MS: Final = 20_000
MEMORY_BYTES: Final = 4000
"""Some twenty keys: many passes."""
READ_BYTES: Final = 1 << 20

COMPACTED: Final = "compacted"
"""Where `Convergence` finds the numbers of partitions whose bytes differ from node to node."""


async def _open(node: Node) -> int:
    """The number of the compacted partition, which is opened where there is none."""
    must_lead(node)
    group = group_of(node)
    found = _partition(group)
    if found is None:
        (found,) = await run_commands(node, lambda: group.open_partitions([(TOPIC_ID, 0)]))
    return found.local_id


async def _write(node: Node, number: int, data: bytes) -> None:
    must_lead(node)
    group = group_of(node)
    batch = bytearray(data)
    group.append(group.partitions[number], batch, read_header(batch))
    await commit(node)


def _partition(group: LogGroup) -> PartitionLog | None:
    return next((each for each in group.partitions.values() if each.topic_id == TOPIC_ID), None)


class Compacting(Workload):
    """See the module."""

    name = "compacting"
    overrides: ClassVar[Mapping[str, object]] = {"rot": False, "think_ms": 40, "segment_bytes": 32768}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._compacted: set[int] = set()
        world.shared[COMPACTED] = self._compacted
        self._active = 0
        self.passes = self.saved_bytes = self.sealed = 0

    # -- clients ----------------------------------------------------------------------------------------

    async def client(self, number: int) -> None:
        self._active += 1
        random = self.world.random(f"client {number}")
        finder = Finder(self.world, f"leader for {number}")
        count = 0
        while self.world.working:
            await asyncio.sleep(random.expovariate(1.0) * self.world.options.think_ms / 1000)
            count += 1
            builder = BatchBuilder()
            for _ in range(random.choice((1, 1, 2, 5))):
                value = None if random.random() < 0.15 else b"%d.%d." % (number, count) + bytes(300)
                builder.append(value, b"key %d" % int(KEYS * random.random() ** 2), timestamp_ms=1)
            await self._write(finder, builder.build())
        self._active -= 1

    async def _write(self, finder: Finder, data: bytes) -> bool:
        try:
            number = await finder.ask(on_node(_open))
            self._compacted.add(number)
            await finder.ask(on_node(_write, number, data))
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            await asyncio.sleep(BACKOFF_S)
            return False
        return True

    async def write_on(self) -> None:
        builder = BatchBuilder()
        builder.append(b"on", b"on", timestamp_ms=1)
        await self._write(Finder(self.world, "on"), builder.build())

    async def settle(self) -> None:
        """Every node has everything, cleans once more, and reads as it should."""
        await until(lambda: self._active == 0)
        await until(lambda: self._write(Finder(self.world, "last"), _last()))
        await at_rest(self.world)
        for node in self.world.members():
            if not is_whole(group_of(node)):
                text = f"{node} has nothing to come, and waits for {group_of(node).log.whole_index}"
                self.world.violate("never whole again", text)
            self._check(node)

    # -- the cleaner of a node --------------------------------------------------------------------------

    def opened(self, node: Node) -> None:
        self._later(node, {"dirty": 0})

    def _later(self, node: Node, memory: dict[str, int]) -> None:
        after_s = CLEAN_S * (0.5 + node.draw(1000) / 1000)
        node.loop.call_later(after_s, lambda: self._begin(node, memory))

    def _begin(self, node: Node, memory: dict[str, int]) -> None:
        task = node.loop.create_task(self._clean(node, memory), name="clean")
        task.add_done_callback(node._kept)

    async def _clean(self, node: Node, memory: dict[str, int]) -> None:
        group = group_of(node)
        partition = _partition(group)
        if partition is not None and group.failed is None:
            try:
                if node.draw(SEAL_ONE_IN) == 0:
                    self.sealed += await group.sealer.run(SEAL_S, without_members=node.draw(2) == 0)
                wanted = _wanted(group, partition, memory["dirty"])
                done = await group.clean([wanted], node.clock_ms(), MEMORY_BYTES, _at_once)
                if group.log.has_small_neighbours():
                    self.world.joined += await group.join_small(_at_once)
            except CorruptLog:
                if not node.damaged:
                    raise
                done = None
            except (StorageError, OSError):
                done = None
            if done is not None:
                self.passes += 1
                self.saved_bytes += done.saved_bytes
                memory["dirty"] = done.ends.get(partition.local_id, 0)
            if node.group is group and group.failed is None:
                group.free_deleted_segments()
                self._check(node)
        self._later(node, memory)

    # -- the rule ---------------------------------------------------------------------------------------

    def _check(self, node: Node) -> None:
        group = group_of(node)
        self._history.changed(node)
        partition = _partition(group)
        if partition is None or node.damaged or not is_whole(group):
            return
        self._compacted.add(partition.local_id)
        written = self._records(partition)
        where = f"{node}, partition {partition.local_id}"
        there: dict[bytes | None, bytes | None] = {}
        for record in self._read(node, partition, where):
            was = written.get(record.offset)
            if was is None or (was.key, was.value) != (record.key, record.value):
                self.world.violate("a record that nobody wrote", f"{where}: {record!r}, written {was!r}")
            there[record.key] = record.value
        last = {record.key: record.value for record in written.values()}
        for key in sorted(k for k in last if k is not None):
            if there.get(key) != last[key]:
                text = f"{where}: {key!r} is {_shown(there.get(key))}, the last value is {_shown(last[key])}"
                self.world.violate("the last value of each key", text)

    def _records(self, partition: PartitionLog) -> dict[int, Record]:
        """By offset: what was committed, as far as this node knows of it."""
        found: dict[int, Record] = {}
        for batch in self._history.batches.get(partition.local_id, []):
            if batch.next_offset <= partition.high_watermark:
                found.update((record.offset, record) for record in iter_records(batch.data))
        return found

    def _read(self, node: Node, partition: PartitionLog, where: str) -> list[Record]:
        found: list[Record] = []
        offset, end = partition.log_start_offset, partition.high_watermark
        while offset < end:
            before = offset
            with unseen(self.world):
                log = group_of(node).log
                at = max(offset, log.first_offset(partition.local_id) or 0)
                buffers = log.read_cold(partition.local_id, at, READ_BYTES, end).buffers
            for buffer in buffers:
                for place, header in iter_headers(buffer):
                    offset = header.next_offset
                    found += iter_records(buffer, place)
            if offset == before:
                self.world.violate("unreadable", f"{where}: nothing comes from {offset} on, the end is {end}")
        return found


def _wanted(group: LogGroup, partition: PartitionLog, dirty: int) -> CompactionTarget:
    """As broker/maintenance/compaction.py."""
    ends = [
        share.last_offset + 1
        for segment in group.log.cleanable_segments()
        for share in segment.partitions()
        if share.local_id == partition.local_id
    ]
    end = min(max(ends, default=0), partition.last_stable_offset, partition.high_watermark)
    newest = partition.high_watermark - 1
    return CompactionTarget(
        partition.local_id, min(dirty, end), end, DELETE_RETENTION_MS, AbortedTransactions(), newest
    )


def _at_once(_: int) -> None:
    """No pause in virtual time."""


def _last() -> bytes:
    builder = BatchBuilder()
    builder.append(b"last", b"last", timestamp_ms=1)
    return builder.build()


def _shown(value: bytes | None) -> str:
    return repr(value if value is None else value[:20])
