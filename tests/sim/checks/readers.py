"""What readers see: committed bytes, no gap, no step back; and the end of a partition never goes back.

Fetched batches are looked at where they leave a node, against the history of that moment: what is not
committed by anybody yet may not be there. Ends that a leader tells under its lease are held against what any
client knew before, so a stale leader is found out. Source: Jepsen's int-poll-skip and int-nonmonotonic-poll.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from lockstep.protocol.records.batch import iter_headers
from lockstep.storage.types import Buffer
from tests.sim.checks.clients import Clients
from tests.sim.checks.history import Batch, History
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

CRC_FROM = 21
"""Where what a batch's checksum covers begins."""


class Readers(Check):
    """See the module."""

    def __init__(self, world: World, clients: Clients) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._clients = clients
        self._ends: dict[tuple[Node, int], int] = {}
        """By node and partition: the end it has shown in this life."""
        self._told: dict[int, int] = {}
        """By partition: the highest end that a client was told under a lease."""
        self.batches_read = 0

    def opened(self, node: Node) -> None:
        self.crashed(node, "")

    def crashed(self, node: Node, how: str) -> None:
        for key in [each for each in self._ends if each[0] is node]:
            del self._ends[key]

    # --- at the node, when it answers ---------------------------------------------------------------------

    def fetched(self, node: Node, number: int, offset: int, buffers: Sequence[Buffer]) -> int:
        """A node answers a read from `offset`; returns where the reader goes on."""
        self._history.changed(node)
        at = offset
        for buffer in buffers:
            for position, header in iter_headers(buffer):
                batch = self._batch(number, header.base_offset)
                where = f"{node}, partition {number}, read from {offset}: batch at {header.base_offset}"
                if batch is None:
                    self.world.violate("uncommitted bytes read", where)
                    return at
                data = bytes(buffer[position : position + header.total_bytes])
                if data != batch.data:
                    if node.damaged and crc32c(data[CRC_FROM:]) != header.crc:
                        return at  # rotten, and any reader sees it
                    self.world.violate("wrong bytes read", f"{where}: not the bytes of entry {batch.index}")
                if not batch.base_offset <= at < batch.next_offset:
                    text = f"{where} to {batch.next_offset}, expected one that holds {at}"
                    self.world.violate("offsets skip or go back", text)
                at = batch.next_offset
                self.batches_read += 1
        return at

    def showed_end(self, node: Node, number: int, high_watermark: int) -> None:
        """A node shows where a partition ends, in whatever answer."""
        self._history.changed(node)
        committed = self._history.next_offset(number)
        if high_watermark > committed:
            text = f"{node}, partition {number}: {high_watermark}, committed is {committed}"
            self.world.violate("an end that is not committed", text)
        key = node, number
        known = self._ends.get(key, 0)
        if high_watermark < known:
            text = f"{node}, partition {number}: from {known} to {high_watermark}"
            self.world.violate("high watermark goes back", text)
        self._ends[key] = high_watermark

    def latest(self, node: Node, number: int, high_watermark: int) -> None:
        """A leader tells a partition's latest offset under its lease."""
        self.showed_end(node, number, high_watermark)
        known = max(self._told.get(number, 0), self._clients.acknowledged_end.get(number, 0))
        if high_watermark < known:
            text = f"{node}, partition {number}: {high_watermark}, a client knew of {known} before"
            self.world.violate("stale read under a lease", text)

    # --- at the client ------------------------------------------------------------------------------------

    def heard_latest(self, number: int, high_watermark: int) -> None:
        """A client has been told that: nobody may be told less from now on."""
        self._told[number] = max(self._told.get(number, 0), high_watermark)

    def _batch(self, number: int, base_offset: int) -> Batch | None:
        batches = self._history.batches.get(number, [])
        at = bisect_right(batches, base_offset, key=lambda batch: batch.base_offset)
        found = batches[at - 1] if at else None
        return found if found is not None and found.base_offset == base_offset else None
