"""Several partitions of the group as one log, in the order of LSNs, with another topic's records in between.

The product's own reading: `LsnReader`, `group_entries.split_into_entries`. An entry is a batch, at its last
LSN; a target's part of it has the numbers of that target's records. Here is what `GroupSource` adds to that:
one leadership for each read, the lease for bounds. There are no transactions, and nothing is deleted in the
group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from lockstep.player.core.messages import Entry, Part
from lockstep.player_host.group_entries import split_into_entries
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import iter_records
from lockstep.storage.log.lsn_lookup import FIRST_LSN
from lockstep.storage.log_group import LogGroup
from lockstep.storage.lsn_reader import LsnReader
from lockstep.storage.types import OffsetOutOfRange
from tests.sim.checks import history
from tests.sim.checks.history import History, group_of
from tests.sim.player.log import FAILURES, TOPIC_ID, Log, Piece
from tests.sim.player.log import route as route_record
from tests.sim.workloads.asking import Elsewhere, commit, must_lead, must_lead_alone, on_node, run_commands

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

OTHER_ID: Final = bytes(15) + b"o"
PARTITIONS: Final = [(TOPIC_ID, 0), (TOPIC_ID, 1), (TOPIC_ID, 2), (OTHER_ID, 0)]


def route(entry: Entry) -> list[tuple[str, Part]]:
    """Each target's part of a batch."""
    shares: dict[str, list[Part]] = {}
    assert isinstance(entry.payload, bytes)
    for record in iter_records(entry.payload):
        for name, part in route_record(Entry(entry.position, bytes(record.value or b""))):
            shares.setdefault(name, []).append(part)
    return [
        (
            name,
            Part(
                entry.position,
                " ".join(str(part.payload) for part in parts),
                sum(part.size_bytes for part in parts),
                entry.partition,
            ),
        )
        for name, parts in shares.items()
    ]


async def _open(node: Node) -> None:
    must_lead(node)
    group = group_of(node)
    there = {(each.topic_id, each.index) for each in group.control.partitions.values()}
    missing = [each for each in PARTITIONS if each not in there]
    if missing:
        await run_commands(node, lambda: group.open_partitions(missing))


async def _append(node: Node, data: bytes, place: tuple[bytes, int]) -> None:
    must_lead(node)
    group = group_of(node)
    found = [each for each in group.control.partitions.values() if (each.topic_id, each.index) == place]
    if not found:
        raise Elsewhere(-1)
    batch = bytearray(data)
    group.append(found[0], batch, read_header(batch))
    await commit(node)


async def _end(node: Node) -> int:
    must_lead_alone(node)
    History.of(node.world).changed(node)
    return await _reader(node, group_of(node)).committed_end()


async def _read(node: Node, first: int, last: int, max_bytes: int) -> Piece:
    must_lead(node)
    group = group_of(node)
    term = group.term
    History.of(node.world).changed(node)  # before anybody plays it
    logs = {number: each for number, each in group.control.partitions.items() if each.topic_id == TOPIC_ID}
    reader = _reader(node, group)
    found = await reader.read(first, max_bytes, tuple(logs))
    if not group.is_leader or group.term != term:
        raise Elsewhere(-1)
    made = split_into_entries(found.frames, first, logs, max_bytes, max(first, found.first_lsn) - 1)
    if found.over_gap or made.is_deleted:
        node.world.violate("nothing is lost of the group's log", f"{node} reads {first}: {found}")
    if made.next_index:
        reader.note(made.through_lsn + 1, made.next_index)
    entries = [each for each in made.entries if each.position <= last]
    return Piece(entries, min(made.through_lsn, last), 0)


def _reader(node: Node, group: LogGroup) -> LsnReader:
    """One for each life of a node and each leadership."""
    key = f"lsn reader in term {group.term}"
    reader = node.memory.get(key)
    if not isinstance(reader, LsnReader):
        reader = node.memory[key] = LsnReader(group)
    return reader


class GroupLog(Log):
    """See the module."""

    first_position = FIRST_LSN
    route = staticmethod(route)

    @staticmethod
    def committed(entry: history.Entry, topic_ids: Mapping[int, bytes]) -> Iterator[Entry]:
        """As `Log.committed`."""
        batches = {id(each.directory): each for each in entry.batches}
        lsn = entry.frame.first_lsn
        for directory in entry.frame.directory:
            lsn += directory.record_count
            if topic_ids.get(directory.partition) == TOPIC_ID:
                yield Entry(lsn - 1, batches[id(directory)].data)

    def __init__(self, world: World, purpose: str) -> None:
        super().__init__(world, purpose)
        self._random = world.random(f"partitions of {purpose}")

    async def open(self) -> None:
        await self.finder.insist(on_node(_open))

    async def append(self, data: bytes) -> bool:
        try:
            await self.finder.ask(on_node(_append, data, self._random.choice(PARTITIONS)))
        except FAILURES:
            return False
        return True

    async def read(self, first: int, last: int, max_bytes: int) -> Piece | None:
        """From beyond the log: where it ends."""
        try:
            if first > 1 << 50:
                return Piece([], first - 1, await self.finder.ask(on_node(_end)))
            piece: Piece = await self.finder.ask(on_node(_read, first, last, max_bytes))
        except (*FAILURES, OffsetOutOfRange):
            return None
        return piece
