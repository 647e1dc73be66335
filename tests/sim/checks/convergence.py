"""When everything is healed and at rest: every node has the whole history, byte for byte, and can read it.

Whether rest comes in time the workload's `settle` and the world's clock say; this looks at what it came to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CONTROL_PARTITION
from tests.sim.checks.history import Batch, History, group_of, unseen
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

READ_BYTES = 1 << 20


class Convergence(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)

    def finished(self) -> None:
        history = self._history
        compacted = self.world.shared.get("compacted")
        if not isinstance(compacted, set):  # what differs from node to node `workloads/compacting.py` reads
            compacted = set()
        for node in self.world.members():
            group = group_of(node)
            if group.applied_index != history.last_index or not history.holds(node, history.last_index):
                text = f"{node} has applied {group.applied_index} of {history.last_index} entries"
                self.world.violate("no rest", text)
            for partition in group.partitions.values():
                if partition.local_id != CONTROL_PARTITION and partition.local_id not in compacted:
                    self._reads_all(node, partition)

    def _reads_all(self, node: Node, partition: PartitionLog) -> None:
        """Read a partition from its log start to its end, as a thread would."""
        where = f"{node}, partition {partition.local_id}"
        batches = {each.base_offset: each for each in self._history.batches.get(partition.local_id, [])}
        end = self._history.next_offset(partition.local_id)
        if partition.high_watermark != end:
            text = f"{where}: {partition.high_watermark}, committed is {end}"
            self.world.violate("high watermark", text)
        at = next((o for o, b in batches.items() if b.next_offset > partition.log_start_offset), end)
        offset = max(at, partition.log_start_offset)
        while at < end:
            with unseen(self.world):
                found = group_of(node).log.read_cold(partition.local_id, offset, READ_BYTES, end)
            data = b"".join(bytes(each) for each in found.buffers)
            after = self._same(data, batches, at, where)
            if after == at:
                self.world.violate("unreadable", f"{where}: nothing comes from {at} on, the end is {end}")
            at = offset = after

    def _same(self, data: bytes, batches: dict[int, Batch], at: int, where: str) -> int:
        position = 0
        while position < len(data):
            batch = batches.get(at)
            if batch is None or data[position : position + len(batch.data)] != batch.data:
                self.world.violate(
                    "replicas differ", f"{where}: other bytes than the history's at offset {at}"
                )
                return at
            position += len(batch.data)
            at = batch.next_offset
        return at
