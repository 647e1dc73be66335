"""Consumers: they poll any node for committed data, follow log starts, and ask leaders where partitions end.

What a node answers is checked where it leaves the node (`checks/readers.py`); the consumer's own part is that
it goes on exactly where it was. Source: KIP-392 (followers serve reads), Kafka's ListOffsets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import OffsetOutOfRange, StorageError
from tests.sim.checks.history import History, group_of
from tests.sim.faces import Unanswered
from tests.sim.workloads.asking import Elsewhere, Finder, InDoubt, must_lead_alone, on_node

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.workloads.appends import Appends

FETCH_BYTES = (200, 4000, 64 << 10)


class Fetched(NamedTuple):
    """A node's answer. `there` is False where it does not know the partition (yet, or any more)."""

    there: bool
    next_offset: int
    log_start_offset: int


def is_whole(group: LogGroup) -> bool:
    """As broker/fetch/follower_fetch.py: has it what came in the place of records that are gone here?"""
    return group.is_leader or group.applied_index >= group.log.whole_index


def serves(group: LogGroup) -> bool:
    """As broker/fetch/follower_fetch.py: not before it knows as much to be committed as before it was
    stopped.

    Until then it may not know of log starts either whose files it has freed.
    """
    known = group.applied_index >= min(group.recovered_index, group.raft.last_index)
    return group.failed is None and (group.is_leader or (known and is_whole(group)))


async def fetch(node: Node, workload: Appends, number: int, offset: int, max_bytes: int) -> Fetched:
    """As broker/fetch/api/fetch.py: what is committed here, from memory or from the disk."""
    group = group_of(node)
    partition = group.partitions.get(number)
    if partition is None or not serves(group):
        return Fetched(False, offset, 0)
    workload.readers.showed_end(node, number, partition.high_watermark)
    if offset < partition.log_start_offset or offset >= partition.high_watermark:
        return Fetched(True, offset, partition.log_start_offset)
    try:
        result = group.read(partition, offset, max_bytes)
        if result.cold:
            result = await group.read_cold(partition, offset, max_bytes)
            if not is_whole(group):
                return Fetched(False, offset, 0)
    except OffsetOutOfRange:
        return Fetched(True, offset, _start_after(group, partition, offset, node))
    after = workload.readers.fetched(node, number, offset, result.buffers)
    return Fetched(True, after, partition.log_start_offset)


def _start_after(group: LogGroup, partition: PartitionLog, offset: int, node: Node) -> int:
    """An offset is below the log only where the log start has moved beyond it, or the partition went."""
    start = partition.log_start_offset
    if start <= offset and partition.local_id in group.partitions:
        text = f"{node}, partition {partition.local_id}: {offset}, the log start is {start}"
        node.world.violate("a retained offset is out of range", text)
    return partition.log_start_offset


def latest(node: Node, workload: Appends, number: int) -> int:
    """As broker/fetch/api/list_offsets.py for LATEST: local, under the lease."""
    must_lead_alone(node)
    partition = group_of(node).partitions.get(number)
    if partition is None:
        workload.is_gone(number)
        raise Elsewhere(node.node_id)
    workload.readers.latest(node, number, partition.high_watermark)
    return partition.high_watermark


async def look_up(node: Node, number: int, timestamp_ms: int) -> None:
    """As broker/fetch/api/list_offsets.py for a time: the first batch with a record that new or newer."""
    group = group_of(node)
    partition = group.partitions.get(number)
    if partition is None or not serves(group):
        return
    start, end = partition.log_start_offset, partition.high_watermark
    found = await asyncio.to_thread(group.log.timestamp_lookup, number, timestamp_ms, start, end)
    if partition.log_start_offset != start or number not in group.partitions or not is_whole(group):
        return
    right = History.of(node.world).first_at(number, timestamp_ms, start, end)
    base_offset = found.base_offset if found is not None else None
    if base_offset != right:
        where = f"{node}, partition {number}: {base_offset} for {timestamp_ms} in {start}..{end}"
        node.world.violate("an offset by time", f"{where}, it is {right}")


class Consumer:
    """Reads every partition from wherever it is, on whichever node."""

    def __init__(self, workload: Appends, name: str) -> None:
        self._workload = workload
        self._world = workload.world
        self._random = workload.world.random(f"consumer {name}")
        self._finder = Finder(workload.world, f"leader for consumer {name}")
        self._positions: dict[int, int] = {}

    async def one(self) -> None:
        """One poll, or one question."""
        running = self._world.running()
        numbers = sorted(self._workload.numbers.values())
        if not running or not numbers:
            return
        number = self._random.choice(numbers)
        kind = self._random.random()
        try:
            if kind < 0.15:
                end = await self._finder.ask(on_node(latest, self._workload, number))
                self._workload.readers.heard_latest(number, end)
            elif kind < 0.22:
                time_ms = int(self._world.now_s * 1000 * self._random.random())
                node = self._random.choice(running)
                await self._world.ask(node, on_node(look_up, number, time_ms), 5.0)
            else:
                await self.poll(self._random.choice(running), number)
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            self._finder.lost()

    async def poll(self, node: Node, number: int) -> int:
        """One fetch from a node; where it goes on."""
        position = self._positions.get(number, 0)
        max_bytes = self._random.choice(FETCH_BYTES)
        got = await self._world.ask(node, on_node(fetch, self._workload, number, position, max_bytes), 5.0)
        if got.there:
            position = max(position, got.log_start_offset, got.next_offset)
            self._positions[number] = position
        return position

    async def read_to_the_end(self, node: Node, number: int) -> None:
        """Everything that a node has of a partition, from its log start on."""
        self._positions[number] = 0
        while True:
            try:
                before = self._positions[number]
                position = await self.poll(node, number)
            except (Unanswered, StorageError, OSError):
                await asyncio.sleep(0.1)
                continue
            partition = group_of(node).partitions.get(number) if node.group is not None else None
            if partition is None or position >= partition.high_watermark:
                return
            if position == before:
                await asyncio.sleep(0.1)
