"""Transactions as the one history has them, and what nodes and readers of committed records make of them.

The model here is made from batches' headers and markers alone. Every node's last stable offset is held
against it as of the entry that the node has applied; what a reader sees, against how each transaction ended;
and a transaction that a client ends in one group ends in one entry: nobody can see a half of it. Source:
KIP-98; Kafka's consumer for what a client leaves out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.control import ControlKind, parse
from lockstep.storage.types import Buffer
from tests.sim.checks.history import Batch, Entry, History, group_of
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

GONE = 1 << 62
"""A log start beyond this says that its partition is closed."""


class Transaction:
    """One producer's transaction, as its client wants it."""

    __slots__ = ("epoch", "is_commit", "is_over", "marker_epoch", "numbers", "producer_id")

    def __init__(self, producer_id: int, epoch: int, marker_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.marker_epoch = marker_epoch
        self.numbers: set[int] = set()
        """Partitions that may have batches of it."""
        self.is_commit: bool | None = None
        """How it is to end; None while it goes on."""
        self.is_over = False
        """The client has been told that it has ended."""

    def __repr__(self) -> str:
        how = {None: "under way", True: "to commit", False: "to abort"}[self.is_commit]
        return f"transaction of producer {self.producer_id}, epoch {self.epoch}, {how}"


class Transactions(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self._open: dict[int, dict[int, Batch]] = {}
        """By partition and producer: the first batch of what is open in the history."""
        self._first_open: dict[int, list[tuple[int, int]]] = {}
        """By partition: from which entry on the first open transaction begins where; -1 for none."""
        self._fates: dict[tuple[int, int], bool] = {}
        """By partition and base offset: was the batch's transaction committed?"""
        self._current: dict[int, Transaction] = {}
        self._shown: dict[tuple[Node, int], int] = {}
        self.ended = 0
        self.records_left_out = 0

    # --- told by clients ----------------------------------------------------------------------------------

    def begin(self, transaction: Transaction) -> None:
        """A producer's next one; the one before is over."""
        self._current[transaction.producer_id] = transaction

    def over(self, transaction: Transaction) -> None:
        """The client has been told that it has ended, everywhere."""
        transaction.is_over = True
        for number in sorted(transaction.numbers):
            if transaction.producer_id in self._open.get(number, {}) and not self._is_gone(number):
                self.world.violate("ended, not committed", f"{transaction}: open in partition {number}")
        self.ended += 1

    # --- told by the history ------------------------------------------------------------------------------

    def _committed(self, entry: Entry) -> None:
        ended: dict[int, ControlKind] = {}
        for batch in entry.batches:
            header = batch.header
            if not header.is_transactional:
                continue
            opened = self._open.setdefault(batch.partition, {})
            if not header.is_control:
                opened.setdefault(header.producer_id, batch)
            else:
                self._ends(batch, opened, ended)
            first = min((each.base_offset for each in opened.values()), default=-1)
            self._first_open.setdefault(batch.partition, []).append((entry.frame.index, first))
        for producer_id in ended:
            halves = [n for n, opened in self._open.items() if producer_id in opened and not self._is_gone(n)]
            if halves:
                text = f"entry {entry.frame.index} ends {self._current[producer_id]}; open in {halves}"
                self.world.violate("half of a transaction has ended", text)

    def _ends(self, batch: Batch, opened: dict[int, Batch], ended: dict[int, ControlKind]) -> None:
        kind, producer_id = parse(batch.data).kind, batch.header.producer_id
        first = opened.pop(producer_id, None)
        if first is None:
            return
        ended[producer_id] = kind
        wanted = self._current[producer_id]
        if wanted.marker_epoch != batch.header.producer_epoch or wanted.is_commit is not (
            kind is ControlKind.COMMIT
        ):
            where = f"partition {batch.partition} offset {batch.base_offset}"
            text = f"{where}: {kind.name} of epoch {batch.header.producer_epoch} ends {wanted}"
            self.world.violate("ended as nobody wanted", text)
        batches = self._history.batches[batch.partition]
        at = bisect_left(batches, first.base_offset, key=lambda each: each.base_offset)
        for each in batches[at:]:
            if each.header.producer_id == producer_id:
                key = batch.partition, each.base_offset
                self._fates.setdefault(key, kind is ControlKind.COMMIT)

    def _is_gone(self, number: int) -> bool:
        return self._history.log_starts.get(number, 0) > GONE

    # --- told by the world --------------------------------------------------------------------------------

    def opened(self, node: Node) -> None:
        self.crashed(node, "")
        self.changed(node)

    def crashed(self, node: Node, how: str) -> None:
        for key in [each for each in self._shown if each[0] is node]:
            del self._shown[key]

    def changed(self, node: Node) -> None:
        """What a node says is stable is what the entries that it has applied make of it, and only grows."""
        group = group_of(node)
        if group.failed is not None or group.applied_index > self._history.last_index:
            return
        for number, partition in group.partitions.items():
            found = partition.last_stable_offset
            first = self._first_open_at(number, group.applied_index)
            expected = partition.high_watermark if first < 0 else max(first, partition.log_start_offset)
            where = f"{node} at entry {group.applied_index}, partition {number}"
            if found != expected:
                self.world.violate("last stable offset", f"{where}: {found}, the history gives {expected}")
            before = self._shown.get((node, number), 0)
            if found < before:
                self.world.violate("last stable offset goes back", f"{where}: from {before} to {found}")
            self._shown[node, number] = found

    def _first_open_at(self, number: int, index: int) -> int:
        known = self._first_open.get(number, [])
        at = bisect_right(known, index, key=lambda each: each[0])
        return known[at - 1][1] if at else -1

    def finished(self) -> None:
        for number, opened in self._open.items():
            if opened and not self._is_gone(number):
                text = f"partition {number}: {sorted(opened)} at {self._first_open[number][-1]}"
                self.world.violate("a transaction hangs", text)

    # --- at the reader ------------------------------------------------------------------------------------

    def read(
        self,
        node: Node,
        number: int,
        offset: int,
        buffers: Sequence[Buffer],
        aborted: Iterable[AbortedTransaction],
    ) -> None:
        """A client that reads committed records has got these: it leaves out what it is told to."""
        waiting = sorted(aborted, key=lambda each: each.first_offset)
        left_out: set[int] = set()
        for buffer in buffers:
            for position, header in iter_headers(buffer):
                while waiting and waiting[0].first_offset <= header.last_offset:
                    left_out.add(waiting.pop(0).producer_id)
                if not header.is_transactional or header.last_offset < offset:
                    continue
                if header.is_control:
                    if parse(buffer, position).kind is ControlKind.ABORT:
                        left_out.discard(header.producer_id)
                    continue
                fate = self._fates.get((number, header.base_offset))
                is_read = header.producer_id not in left_out
                self.records_left_out += not is_read
                if is_read is not fate:
                    rule = "a committed record is left out" if fate else "an aborted record is read"
                    rule = "an undecided record is read" if fate is None else rule
                    where = f"{node}, partition {number}, read from {offset}"
                    self.world.violate(rule, f"{where}: batch at {header.base_offset}")
