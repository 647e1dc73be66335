"""The log that is played: one partition of the group, written by clients, read from the leader.

Positions are offsets. A record names its targets, so that what each must get follows from what was
committed: `b"<names>;<number>;<padding>"`, of which a target's part is `"<name>;<number>"`. Retention is a
first position (in `rules.py`) that moves up: nothing below it can be read, whatever the group still has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lockstep.player.core.messages import Entry, Part
from lockstep.protocol.records.batch import iter_headers, read_header
from lockstep.protocol.records.record import iter_records
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import OffsetOutOfRange, StorageError
from tests.sim.checks import history
from tests.sim.checks.history import History, group_of
from tests.sim.faces import Unanswered
from tests.sim.workloads.asking import (
    Elsewhere,
    Finder,
    InDoubt,
    commit,
    must_lead,
    on_node,
    run_commands,
)

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

TOPIC_ID: Final = bytes(15) + b"p"
FAILURES: Final = (Elsewhere, InDoubt, Unanswered, StorageError, OSError)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one read found: all from its first position to `through_position`, and where the log ends."""

    entries: list[Entry]
    through_position: int
    next_position: int


def route(entry: Entry) -> list[tuple[str, Part]]:
    """Each target's part of a record."""
    names, number, padding = _fields(entry.payload)
    return [
        (name, Part(entry.position, f"{name};{number}", 20 + len(padding)))
        for name in names.split(",")
        if name
    ]


def _fields(payload: object) -> tuple[str, str, str]:
    assert isinstance(payload, bytes)
    names, number, padding = payload.decode().split(";")
    return names, number, padding


def _partition(group: LogGroup) -> PartitionLog | None:
    return next((each for each in group.partitions.values() if each.topic_id == TOPIC_ID), None)


async def _open(node: Node) -> None:
    must_lead(node)
    group = group_of(node)
    if _partition(group) is None:
        await run_commands(node, lambda: group.open_partitions([(TOPIC_ID, 0)]))


async def _append(node: Node, data: bytes) -> None:
    must_lead(node)
    group = group_of(node)
    partition = _partition(group)
    if partition is None:
        raise Elsewhere(-1)
    batch = bytearray(data)
    group.append(partition, batch, read_header(batch))
    await commit(node)


async def _read(node: Node, first: int, last: int, max_bytes: int) -> Piece:
    must_lead(node)
    group = group_of(node)
    History.of(node.world).changed(node)  # before anybody plays it
    partition = _partition(group)
    if partition is None:
        return Piece([], first - 1, 0)
    next_position = partition.high_watermark
    if first >= next_position:
        return Piece([], first - 1, next_position)
    found = group.read(partition, first, max_bytes)
    if found.cold:
        found = await group.read_cold(partition, first, max_bytes)
    entries: list[Entry] = []
    through = first - 1
    for buffer in found.buffers:
        for at, header in iter_headers(buffer):
            for record in iter_records(buffer, at):
                if first <= record.offset <= last:
                    entries.append(Entry(record.offset, bytes(record.value or b"")))
            through = max(through, header.next_offset - 1)
    return Piece(entries, min(through, last), next_position)


class Log:
    """One reader's, or writer's, way to the log. `route` and `committed`: what is in it, whoever reads."""

    first_position = 0

    route = staticmethod(route)

    @staticmethod
    def committed(entry: history.Entry, topic_ids: Mapping[int, bytes]) -> Iterator[Entry]:
        """What a committed entry of the group's history has of it."""
        for batch in entry.batches:
            if topic_ids.get(batch.partition) == TOPIC_ID:
                for record in iter_records(batch.data):
                    yield Entry(record.offset, bytes(record.value or b""))

    def __init__(self, world: World, purpose: str) -> None:
        self.world = world
        self.finder = Finder(world, f"leader for {purpose}")

    async def open(self) -> None:
        await self.finder.insist(on_node(_open))

    async def append(self, data: bytes) -> bool:
        """Whether it is certain that it is there."""
        try:
            await self.finder.ask(on_node(_append, data))
        except FAILURES:
            return False
        return True

    async def read(self, first: int, last: int, max_bytes: int) -> Piece | None:
        """None where nobody answers."""
        try:
            piece: Piece = await self.finder.ask(on_node(_read, first, last, max_bytes))
        except (*FAILURES, OffsetOutOfRange):
            return None
        return piece
