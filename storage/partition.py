"""One partition in its group's log: offsets, epochs, and the listeners to its growth.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= next_offset; none of them goes back
while a term lasts. `next_offset` counts what is appended, the others what is committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from lockstep.storage.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    PartitionTransactions,
)
from lockstep.storage.types import Buffer, DirectoryEntry, StateMachine


class PartitionLog:
    """A partition of a log group: a local id, and offsets that only grow."""

    __slots__ = (
        "epoch_base",
        "high_watermark",
        "index",
        "leader_epochs",
        "local_id",
        "log_start_offset",
        "machine",
        "next_offset",
        "on_advance",
        "topic_id",
        "transactions",
    )

    def __init__(self, local_id: int, topic_id: bytes, index: int, epoch_base: int = 0) -> None:
        self.local_id = local_id
        """Its id within the log group, never used again."""
        self.topic_id = topic_id
        self.index = index
        """Kafka's partition index within the topic."""
        self.epoch_base = epoch_base
        self.log_start_offset = 0
        self.next_offset = 0
        self.high_watermark = 0
        self.leader_epochs: list[tuple[int, int]] = []
        """(leader epoch, offset of its first record), ascending in both."""
        self.machine: StateMachine | None = None
        """Its committed batches are replayed into this, if there is one."""
        self.transactions: PartitionTransactions | None = None
        """The transactions of the committed log; None where there are none."""
        self.on_advance: list[Callable[[], None]] = []
        """Called once per commit that moved the high watermark; nothing else moves the last stable offset."""

    @property
    def last_stable_offset(self) -> int:
        """The first open transaction's first offset, or the high watermark: all below is decided."""
        transactions = self.transactions
        first = None if transactions is None else transactions.first_open_offset
        return self.high_watermark if first is None else max(first, self.log_start_offset)

    def apply_transaction_batch(self, entry: DirectoryEntry, payload: Buffer) -> None:
        """Applies a committed batch of a transaction, or its marker."""
        if self.transactions is None:
            self.transactions = PartitionTransactions()
        self.transactions.commit(entry, payload)

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions for a reader from `first_offset` up to `end_offset`."""
        transactions = self.transactions
        return [] if transactions is None else transactions.aborted_between(first_offset, end_offset)

    def aborted_so_far(self) -> AbortedTransactions:
        """Returns all aborted transactions, for another thread."""
        return AbortedTransactions() if self.transactions is None else self.transactions.aborted.copy()

    def note_epoch(self, leader_epoch: int, offset: int) -> None:
        """Records the first offset of `leader_epoch`, if it is new here."""
        epochs = self.leader_epochs
        if not epochs or epochs[-1][0] < leader_epoch:
            epochs.append((leader_epoch, offset))

    def forget_epochs(self) -> None:
        """Forgets epochs that no reader at or above the log start needs: all before the last one that began
        below it, the epoch of the record before. Source: Kafka's truncateFromStart."""
        epochs = self.leader_epochs
        if len(epochs) > 1:
            began_below = bisect_left(epochs, self.log_start_offset, key=lambda pair: pair[1])
            del epochs[: max(0, began_below - 1)]

    def end_offset_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Returns the newest epoch at or below `leader_epoch`, and the offset where its successor begins.

        (-1, -1) where the partition never had such an epoch. Source: KIP-101, KIP-320.
        """
        position = bisect_right(self.leader_epochs, leader_epoch, key=lambda pair: pair[0])
        if position == 0:
            return -1, -1
        found = self.leader_epochs[position - 1][0]
        if position == len(self.leader_epochs):
            return found, self.high_watermark
        return found, self.leader_epochs[position][1]

    def __repr__(self) -> str:
        return (
            f"PartitionLog(local_id={self.local_id}, index={self.index}, "
            f"log_start_offset={self.log_start_offset}, high_watermark={self.high_watermark}, "
            f"next_offset={self.next_offset})"
        )
