"""The one who administers partitions: opens, closes, moves log starts, has dead segments freed.

One act at a time; each may be done twice, so an act in doubt is simply done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.types import StorageError
from tests.sim.checks.history import History, group_of
from tests.sim.faces import Unanswered
from tests.sim.workloads.asking import Elsewhere, Finder, InDoubt, on_node, run_commands

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.workloads.appends import Appends

TOPIC_ID = bytes(range(16))
INDEXES = 3
TEMPORARY_INDEX = 2
"""The partition that is closed and opened again."""


async def open_missing(node: Node, topic_id: bytes, indexes: int) -> dict[int, int]:
    """Open what is not open, as `Topics` does; the group's number of each partition of the topic."""
    group = group_of(node)

    def known() -> dict[int, int]:
        return {p.index: p.local_id for p in group.partitions.values() if p.topic_id == topic_id}

    async def work() -> dict[int, int]:
        missing = [(topic_id, index) for index in range(indexes) if index not in known()]
        if missing:
            await group.open_partitions(missing)
        else:
            await group.committed()
        return known()

    return await run_commands(node, work)


async def close(node: Node, number: int) -> None:
    """End a partition, if it is open."""
    group = group_of(node)

    async def work() -> None:
        if number in group.partitions:
            await group.close_partitions([number])

    await run_commands(node, work)


async def delete_records(node: Node, number: int, share: float) -> None:
    """Move a log start to some share of what is there, as DeleteRecords and retention do."""
    group = group_of(node)

    async def work() -> None:
        partition = group.partitions.get(number)
        if partition is not None:
            start, end = partition.log_start_offset, partition.high_watermark
            await group.advance_log_starts({number: start + int((end - start) * share)})

    await run_commands(node, work)


def free(node: Node) -> int:
    """Give back dead segments; every node does that for itself."""
    return group_of(node).free_deleted_segments()


class Administrator:
    """See the module."""

    def __init__(self, workload: Appends) -> None:
        self._workload = workload
        self._world = workload.world
        self._random = workload.world.random("administrator's acts")
        self._finder = Finder(workload.world, "leader for the administrator")

    async def open_missing(self) -> None:
        """Until every partition is open and known."""
        found = await self._finder.insist(on_node(open_missing, TOPIC_ID, INDEXES))
        if found is not None:
            self._workload.numbers.update(found)

    async def one(self) -> None:
        """One act."""
        numbers = self._workload.numbers
        kind = self._random.random()
        try:
            if len(numbers) < INDEXES or kind < 0.05:
                await self.open_missing()
            elif kind < 0.15:
                number = numbers[TEMPORARY_INDEX]
                self._workload.closing.add(number)
                await self._finder.ask(on_node(close, number))
                self._workload.is_gone(number)
            elif kind < 0.6:
                number = numbers[self._random.choice(sorted(numbers))]
                await self._finder.ask(on_node(delete_records, number, self._random.choice((0.3, 0.9, 1.0))))
            else:
                for node in self._world.running():
                    await self._world.ask(node, free)
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError, ValueError):
            self._finder.lost()
            History.of(self._world)
