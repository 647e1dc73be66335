"""The least workload: clients append values to one partition, and each acknowledged one is there in the end.

The world's own tests run on it. What the product is really judged by is in `workloads/` and `checks/`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar

from crc32c import crc32c

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import OffsetOutOfRange, StorageError
from tests.sim.faces import Unanswered, Workload
from tests.sim.node import Node

if TYPE_CHECKING:
    from tests.sim.world import World

TOPIC = bytes(range(16))
CRC_FROM = 21
"""What a batch's checksum covers; a reader takes nothing that does not verify."""
REFUSALS = (StorageError, Unanswered, OSError)


class PlainWorkload(Workload):
    """See the module."""

    name: ClassVar[str] = "plain"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.acknowledged: dict[int, bytes] = {}
        """Offset to value."""
        self.appended = 0

    async def client(self, number: int) -> None:
        """Append, wait, append."""
        world = self.world
        random = world.random(f"client {number}")
        while world.working:
            await asyncio.sleep(random.expovariate(1000 / world.options.think_ms))
            await self._one(random)

    async def _one(self, random: Random) -> None:
        """Append something, once."""
        world = self.world
        node = world.leader() or random.choice(list(world.nodes.values()))
        self.appended += 1
        value = b"%d-" % self.appended + random.randbytes(random.choice((10, 100, 3000)))
        try:
            offset = await world.ask(node, partial(_append, value))
        except REFUSALS:
            return
        if self.acknowledged.setdefault(offset, value) != value:
            world.violate("an offset is given once", f"offset {offset}")

    async def write_on(self) -> None:
        """As clients do."""
        await self._one(self.world.random("going on"))

    async def settle(self) -> None:
        """Until every member has everything."""
        whole: set[int] = set()
        while missing := [node for node in self.world.members() if node.node_id not in whole]:
            for node in missing:
                if await self._has_all(node):
                    whole.add(node.node_id)
            await asyncio.sleep(0.2)
        while len({n.group.applied_index for n in self.world.members() if n.group is not None}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _has_all(self, node: Node) -> bool:
        try:
            found = await self.world.ask(node, _read_all)
        except REFUSALS:
            return False
        for offset, value in self.acknowledged.items():
            if offset not in found:
                return False
            if found[offset] != value:
                self.world.violate("what was acknowledged stays", f"node {node.node_id}, offset {offset}")
        return True


def _partition(node: Node) -> PartitionLog | None:
    assert node.group is not None
    return next((p for p in node.group.partitions.values() if p.topic_id == TOPIC), None)


async def _append(value: bytes, node: Node) -> int:
    group = node.group
    assert group is not None
    partition = _partition(node)
    if partition is None:
        await group.open_partitions([(TOPIC, 0)])
        partition = _partition(node)  # another client may have been faster
        assert partition is not None
    builder = BatchBuilder()
    builder.append(timestamp_ms=5, key=None, value=value)
    batch = bytearray(builder.build())
    offset = group.append(partition, batch, read_header(batch))
    await group.committed()
    return offset


async def _read_all(node: Node) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    group, partition = node.group, _partition(node)
    if group is None or partition is None:
        return found
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        try:
            result = group.read(partition, offset, 1 << 16)
            if result.cold:
                result = await group.read_cold(partition, offset, 1 << 16)
        except OffsetOutOfRange:
            break
        if not result.buffers:
            break
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                header = read_header(buffer, position)
                if crc32c(buffer[position + CRC_FROM : position + header.total_bytes]) == header.crc:
                    for record in iter_records(buffer, position):
                        found[record.offset] = bytes(record.value or b"")
                position += header.total_bytes
                offset = header.next_offset
    return found
