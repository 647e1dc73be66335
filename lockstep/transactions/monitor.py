"""The transaction monitor: the pending appends, and their entries that the subscription has brought. Pure.

An append is known to be in the log when it was acknowledged or the subscription has brought its request id,
whichever comes first; when neither can come any more, it is not in the log.
Source: seed 004 (TransactionMonitor).
"""

from __future__ import annotations

from collections.abc import Awaitable

from lockstep.transactions.log import AppendAttempt
from lockstep.transactions.model import Committed, RequestId
from lockstep.transactions.transaction import Transaction


class PendingAppend:
    """One try at a transaction."""

    __slots__ = ("append", "completing", "seen", "transaction")

    def __init__(self, transaction: Transaction, append: AppendAttempt) -> None:
        self.transaction = transaction
        self.append = append
        self.seen: dict[int, Committed] = {}
        """By partition: what the subscription has brought of it."""
        self.completing: Awaitable[None] | None = None
        """The call of its `on_completion`, which whoever comes later waits for."""

    @property
    def offsets(self) -> dict[int, int]:
        """Partition -> offset of the last record, of what the subscription has brought."""
        return {partition: entry.offset for partition, entry in self.seen.items()}


class Monitor:
    """The tries that one client has under way."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.generation = 0
        """Rises with each fence."""
        self._sequence = 0
        self._pending: dict[RequestId, PendingAppend] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def next_request(self) -> RequestId:
        """An id that nothing else has, nor had."""
        self._sequence += 1
        return RequestId(self.client, self.generation, self._sequence)

    def register(self, transaction: Transaction, append: AppendAttempt) -> PendingAppend:
        """Before it is sent: the subscription may be faster than the response."""
        pending = self._pending[append.request] = PendingAppend(transaction, append)
        return pending

    def match(self, entry: Committed) -> PendingAppend | None:
        """The pending append that `entry` belongs to; called once per transaction that the subscription
        brings.

        Anybody may write a record with our request in its headers: it must be our records, too.
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
        """It has come to its end."""
        self._pending.pop(pending.append.request, None)
