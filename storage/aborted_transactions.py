"""One partition's transactions by its committed log: the open ones, and the aborted ones.

Owns what a reader of committed records must know: the first offset of an open transaction, and the aborted
transactions below it. Invariants: given each committed batch that is marked transactional, once
and in order, it is the same on every replica and after every restart; a transaction is open from its first
batch to its marker; aborted ones are ordered by their markers, and kept until no one can read their records.
Does not: know producers' epochs and sequences (`broker/produce/producer_state.py` does) or coordinators.
Source: KIP-98; Kafka's ProducerStateManager, TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from struct import Struct, pack
from typing import Final, NamedTuple, Protocol

from lockstep.protocol.records.batch import peek_header
from lockstep.protocol.records.control import ControlKind, parse
from lockstep.storage.types import Buffer, DirectoryEntry, NewerFormat

ENTRY_TRANSACTIONAL: Final = 2
ENTRY_CONTROL: Final = 4
ENTRY_IN_TRANSACTION: Final = ENTRY_TRANSACTIONAL | ENTRY_CONTROL
"""Directory flags, from the batch's attributes: a batch with none of them is in no transaction."""

STATE_VERSION: Final = 2
_HEAD: Final = Struct(">H")
_PARTITION: Final = Struct(">IIII")
_PARTITION_1: Final = Struct(">III")
"""Of version 1, which had no blocks."""
_OPEN: Final = Struct(">qq")
_BLOCK: Final = Struct(">qI")
_ABORTED: Final = Struct(">qqqq")

BLOCK_LENGTH: Final = 128
"""The aborted transactions of one compressed block: decompressing it takes less than 0.1 ms."""
CACHED_BLOCKS: Final = 64
"""The cache of decompressed blocks of all partitions; some 24 KB each."""


class AbortedTransaction(NamedTuple):
    """One producer's records from `first_offset` to the marker at `last_offset` do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset once the transaction had ended."""


_LAST: Final = attrgetter("last_offset")


def _pack(transactions: list[AbortedTransaction]) -> bytes:
    """Packs them by rising markers, each with its distance to the one before: such numbers compress well."""
    numbers: list[int] = []
    before = 0
    for producer_id, first, last, stable in transactions:
        numbers += (producer_id, last - first, last - before, stable - last)
        before = last
    return zlib.compress(pack(f">{len(numbers)}q", *numbers))


@lru_cache(CACHED_BLOCKS)
def _unpack(block: bytes) -> list[AbortedTransaction]:
    found = []
    last = 0
    for producer_id, length, further, stable in _ABORTED.iter_unpack(zlib.decompress(block)):
        last += further
        found.append(AbortedTransaction(producer_id, last - length, last, last + stable))
    return found


class AbortedTransactions:
    """The aborted transactions of one partition, by rising markers, in some ten bytes each: where no record
    is ever deleted they only become more. All but the newest are in compressed blocks that never change: a
    checkpoint takes them as they are, a copy shares them."""

    __slots__ = ("_blocks", "_ends", "_newest")

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._ends = array("q")
        """The last marker of each block."""
        self._newest: list[AbortedTransaction] = []

    def append(self, transaction: AbortedTransaction) -> None:
        """Its marker lies above all others."""
        self._newest.append(transaction)
        if len(self._newest) == BLOCK_LENGTH:
            self._blocks.append(_pack(self._newest))
            self._ends.append(transaction.last_offset)
            self._newest = []

    @property
    def last_offset(self) -> int:
        """The last marker; -1 for none."""
        if self._newest:
            return self._newest[-1].last_offset
        return self._ends[-1] if self._ends else -1

    def __bool__(self) -> bool:
        return bool(self._newest or self._ends)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._since(0)

    def _since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Returns the transactions whose markers are at the offset or above."""
        for index in range(bisect_left(self._ends, offset), len(self._ends)):
            yield from _not_below(offset, _unpack(self._blocks[index]))
        yield from _not_below(offset, self._newest)

    def overlapping(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the transactions that a reader from `first_offset` up to `end_offset` must leave out."""
        found = []
        for transaction in self._since(first_offset):  # there may be many, of which few are looked at
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break  # later ones begin at or above it
        return found

    def forget_below(self, offset: int) -> None:
        """Removes transactions below `offset`, which no reader needs; a block is removed as a whole."""
        gone = bisect_left(self._ends, offset)
        del self._blocks[:gone], self._ends[:gone]
        if not self._ends:
            self._newest = list(_not_below(offset, self._newest))

    def copy(self) -> AbortedTransactions:
        """Returns a copy for another thread."""
        made = AbortedTransactions()
        made._blocks, made._ends, made._newest = self._blocks[:], self._ends[:], self._newest[:]
        return made

    def snapshot(self) -> tuple[int, int, list[bytes]]:
        """Returns the number of blocks, the number of others, and the bytes of all of them."""
        pieces: list[bytes] = []
        for end, block in zip(self._ends, self._blocks, strict=True):
            pieces += (_BLOCK.pack(end, len(block)), block)
        pieces += [_ABORTED.pack(*each) for each in self._newest]
        return len(self._blocks), len(self._newest), pieces

    def restore(self, data: bytes, at: int, blocks: int, others: int) -> int:
        """Takes over a snapshot's bytes from `at` on into an empty object; returns where they end."""
        for _ in range(blocks):
            end, size = _BLOCK.unpack_from(data, at)
            at += _BLOCK.size
            self._blocks.append(data[at : at + size])
            self._ends.append(end)
            at += size
        for _ in range(others):
            self.append(AbortedTransaction(*_ABORTED.unpack_from(data, at)))
            at += _ABORTED.size
        return at


def _not_below(offset: int, transactions: list[AbortedTransaction]) -> Iterator[AbortedTransaction]:
    for index in range(bisect_left(transactions, offset, key=_LAST), len(transactions)):
        yield transactions[index]


class PartitionTransactions:
    """The transactions of one partition."""

    __slots__ = ("aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id to first offset; ascending, as they began one after the other."""
        self.aborted = AbortedTransactions()

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self.open.values()), None)

    def commit(self, entry: DirectoryEntry, payload: Buffer) -> None:
        """Handles a committed batch with a flag of `ENTRY_IN_TRANSACTION`."""
        producer_id = peek_header(payload).producer_id
        if not entry.flags & ENTRY_CONTROL:
            self.open.setdefault(producer_id, entry.base_offset)
            return
        kind = parse(payload).kind
        if kind is ControlKind.OTHER:
            return
        first_offset = self.open.pop(producer_id, None)
        if kind is ControlKind.ABORT and first_offset is not None:
            marker = entry.base_offset
            stable = self.first_open_offset
            stable = marker + 1 if stable is None else stable
            self.aborted.append(AbortedTransaction(producer_id, first_offset, marker, stable))

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the transactions that a reader up to `end_offset` must leave out, by rising markers."""
        return self.aborted.overlapping(first_offset, end_offset)

    def __bool__(self) -> bool:
        return bool(self.open or self.aborted)


class HasTransactions(Protocol):
    """A partition, as far as its transactions need it; `storage.partition.PartitionLog` is one."""

    local_id: int
    transactions: PartitionTransactions | None

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that readers get."""


def snapshot(partitions: Mapping[int, HasTransactions]) -> bytes:
    """Returns the transactions of all partitions as bytes; those below log starts are forgotten."""
    pieces = []
    for partition in partitions.values():
        transactions = partition.transactions
        if transactions is None:
            continue
        transactions.aborted.forget_below(partition.log_start_offset)
        if not transactions:
            partition.transactions = None
            continue
        blocks, others, aborted = transactions.aborted.snapshot()
        pieces.append(_PARTITION.pack(partition.local_id, len(transactions.open), blocks, others))
        pieces.extend(_OPEN.pack(*each) for each in transactions.open.items())
        pieces.extend(aborted)
    return _HEAD.pack(STATE_VERSION) + b"".join(pieces) if pieces else b""


def restore(partitions: Mapping[int, HasTransactions], data: bytes) -> None:
    """Takes over a snapshot; `b""`, or none in an older checkpoint, means that there are none.
    NewerFormat."""
    for partition in partitions.values():
        partition.transactions = None
    if not data:
        return
    (version,) = _HEAD.unpack_from(data)
    if version > STATE_VERSION:
        raise NewerFormat(f"transactions of version {version}, known up to {STATE_VERSION}")
    at = _HEAD.size
    while at < len(data):
        blocks = 0
        if version == 1:
            local_id, opened, others = _PARTITION_1.unpack_from(data, at)
            at += _PARTITION_1.size
        else:
            local_id, opened, blocks, others = _PARTITION.unpack_from(data, at)
            at += _PARTITION.size
        transactions = PartitionTransactions()
        for _ in range(opened):
            producer_id, first_offset = _OPEN.unpack_from(data, at)
            transactions.open[producer_id] = first_offset
            at += _OPEN.size
        at = transactions.aborted.restore(data, at, blocks, others)
        if local_id in partitions:
            partitions[local_id].transactions = transactions
