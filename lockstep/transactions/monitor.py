"""The transaction monitor: the pending appends, and their entries that the subscription has read. Pure.

An append is in the log once it is acknowledged or the subscription has read its request id, whichever comes
first; when neither can happen any more, it is not in the log.
Source: Waltz documentation (TransactionMonitor).
"""

from __future__ import annotations

from collections.abc import Awaitable

from lockstep.transactions.log import AppendAttempt
from lockstep.transactions.model import Committed, RequestId
from lockstep.transactions.transaction import Transaction


class PendingAppend:
    """One append attempt of a transaction, with an unknown outcome."""

    __slots__ = ("append", "completing", "seen", "transaction")

    def __init__(self, transaction: Transaction, append: AppendAttempt) -> None:
        self.transaction = transaction
        self.append = append
        self.seen: dict[int, Committed] = {}
        """By partition: its entries that the subscription has read."""
        self.completing: Awaitable[None] | None = None
        """The call of its `on_completion`, which later callers wait for."""

    @property
    def offsets(self) -> dict[int, int]:
        """Partition -> offset of the last record, for the partitions that the subscription has read."""
        return {partition: entry.offset for partition, entry in self.seen.items()}


class Monitor:
    """The pending appends of one client."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.generation = 0
        """Rises with each fence."""
        self._sequence = 0
        self._pending: dict[RequestId, PendingAppend] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def next_request(self) -> RequestId:
        """Returns an id that no other append has or had."""
        self._sequence += 1
        return RequestId(self.client, self.generation, self._sequence)

    def register(self, transaction: Transaction, append: AppendAttempt) -> PendingAppend:
        """Registers an append before it is sent: the subscription may be faster than the response."""
        pending = self._pending[append.request] = PendingAppend(transaction, append)
        return pending

    def match(self, entry: Committed) -> PendingAppend | None:
        """Returns the pending append that `entry` belongs to; called once per transaction that the
        subscription reads.

        Any client may write a record with our request id in its headers, so the records must be equal, too.
        """
        if entry.request is None or entry.request.client != self.client:
            return None
        pending = self._pending.get(entry.request)
        part = None if pending is None else pending.append.parts.get(entry.partition)
        if pending is None or part is None or part.records != entry.records:
            return None
        pending.seen[entry.partition] = entry
        return pending

    def forget(self, pending: PendingAppend) -> None:
        """Removes an append whose outcome is known."""
        self._pending.pop(pending.append.request, None)
