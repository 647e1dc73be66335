"""One partition's transactions as its committed log tells them: which are open, and which were aborted.

Owns what a reader of committed records must know: where the first open transaction begins, and whose records
below that place do not count. Invariants: fed with each committed batch that is marked transactional, once
and in order, it is the same on every replica and after every restart; a transaction is open from its first
batch to its marker; aborted ones are ordered by their markers.
Does not: know producers' epochs and sequences (`broker/producer_state.py` does) or coordinators.
Source: KIP-98; Kafka's ProducerStateManager, TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.records.batch import peek_header
from protocol.records.control import ControlKind, parse
from storage.types import Buffer, DirectoryEntry, NewerFormat

if TYPE_CHECKING:
    from storage.partition import PartitionLog

ENTRY_TRANSACTIONAL: Final = 2
ENTRY_CONTROL: Final = 4
ENTRY_IN_TRANSACTION: Final = ENTRY_TRANSACTIONAL | ENTRY_CONTROL
"""Directory flags, from the batch's attributes: what has none of them is nobody's transaction."""

STATE_VERSION: Final = 1
_HEAD: Final = Struct(">H")
_PARTITION: Final = Struct(">III")
_OPEN: Final = Struct(">qq")
_ABORTED: Final = Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """One producer's records from `first_offset` to the marker at `last_offset` do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Where readers of committed records could read up to once it had ended."""


class PartitionTransactions:
    """The transactions of one partition."""

    __slots__ = ("aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id to first offset; ascending, as they began one after the other."""
        self.aborted: list[AbortedTransaction] = []

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self.open.values()), None)

    def commit(self, entry: DirectoryEntry, payload: Buffer) -> None:
        """A batch with a flag of `ENTRY_IN_TRANSACTION` is committed."""
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
        """What a reader from `first_offset` up to `end_offset` must leave out, by rising markers."""
        found = []
        first = bisect_left(self.aborted, first_offset, key=attrgetter("last_offset"))
        for place in range(first, len(self.aborted)):  # there may be many, of which few are looked at
            transaction = self.aborted[place]
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break  # later ones begin at or above it
        return found

    def forget_below(self, offset: int) -> None:
        """Nothing below `offset` can be read any more."""
        del self.aborted[: bisect_left(self.aborted, offset, key=attrgetter("last_offset"))]

    def __bool__(self) -> bool:
        return bool(self.open or self.aborted)


def snapshot(partitions: Mapping[int, PartitionLog]) -> bytes:
    """The transactions of all partitions as bytes; what lies below log starts is forgotten."""
    pieces = []
    for partition in partitions.values():
        transactions = partition.transactions
        if transactions is None:
            continue
        transactions.forget_below(partition.log_start_offset)
        if not transactions:
            partition.transactions = None
            continue
        opened, aborted = transactions.open, transactions.aborted
        pieces.append(_PARTITION.pack(partition.number, len(opened), len(aborted)))
        pieces.extend(_OPEN.pack(*each) for each in opened.items())
        pieces.extend(_ABORTED.pack(*each) for each in aborted)
    return _HEAD.pack(STATE_VERSION) + b"".join(pieces) if pieces else b""


def restore(partitions: Mapping[int, PartitionLog], data: bytes) -> None:
    """Take over a snapshot; `b""`, or none in an older checkpoint, says that there are none. NewerFormat."""
    for partition in partitions.values():
        partition.transactions = None
    if not data:
        return
    (version,) = _HEAD.unpack_from(data)
    if version > STATE_VERSION:
        raise NewerFormat(f"transactions of version {version}, known up to {STATE_VERSION}")
    at = _HEAD.size
    while at < len(data):
        number, opened, aborted = _PARTITION.unpack_from(data, at)
        at += _PARTITION.size
        transactions = PartitionTransactions()
        for _ in range(opened):
            producer_id, first_offset = _OPEN.unpack_from(data, at)
            transactions.open[producer_id] = first_offset
            at += _OPEN.size
        for _ in range(aborted):
            transactions.aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, at)))
            at += _ABORTED.size
        if number in partitions:
            partitions[number].transactions = transactions
