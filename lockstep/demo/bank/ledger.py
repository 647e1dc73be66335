"""The books: entries as they stand in the topic, and the accounts that come of them.

Whatever breaks an invariant of the bank is noted in `problems` and still applied: an auditor
continues.
"""

from __future__ import annotations

import json
import threading
from enum import StrEnum
from typing import Final, NamedTuple, Self

from lockstep.transactions import Application, Committed, RequestId

MAX_PROBLEMS: Final = 10
"""The number of problems that are kept as texts."""


class EntryKind(StrEnum):
    """The kind of an entry."""

    DEPOSIT = "deposit"
    WITHDRAWAL = "withdrawal"
    PAYMENT = "payment"
    """The payer's half of a transfer."""
    RECEIPT = "receipt"
    """The payee's."""
    DEACTIVATION = "deactivation"


_SIGNS: Final = {
    EntryKind.DEPOSIT: 1,
    EntryKind.RECEIPT: 1,
    EntryKind.WITHDRAWAL: -1,
    EntryKind.PAYMENT: -1,
    EntryKind.DEACTIVATION: 0,
}


class LedgerEntry(NamedTuple):
    """The effect of one record on one account."""

    kind: EntryKind
    account: int
    cents: int = 0
    """The amount that is added to it: below zero for a payment out of it."""
    other: int | None = None
    """The account at the other end of a transfer."""

    def pack(self) -> bytes:
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, value: bytes | None) -> Self:
        """Raises ValueError for what is no entry."""
        try:
            found = cls(**json.loads(value or b""))
            kind = EntryKind(found.kind)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not an entry of the bank: {(value or b'')[:80]!r}") from error
        numbers = found.account, found.cents
        if not all(type(each) is int for each in numbers) or _sign(found.cents) != _SIGNS[kind]:
            raise ValueError(f"not an entry of the bank: {(value or b'')[:80]!r}")
        return found._replace(kind=kind)


class Account:
    """One account, by what is known of it."""

    __slots__ = ("cents", "is_active", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.cents = 0
        self.is_active = True


class Ledger(Application):
    """All accounts. Its partitions may be applied side by side, from several threads."""

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.transfers = 0
        """The number of applied payments."""
        self.unmatched_payments: dict[RequestId | None, int] = {}
        """The cents of transfers of which one entry is applied and the other is not."""
        self.problems: list[str] = []
        self._marks: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def cents(self) -> int:
        """The sum over all accounts."""
        return sum([account.cents for account in list(self.accounts.values())])

    def active(self) -> list[int]:
        """The accounts that may be used, in order."""
        return sorted(number for number, account in self.accounts.items() if account.is_active)

    def high_water_mark(self, partition: int) -> int:
        return self._marks.get(partition, -1)

    def apply(self, committed: Committed) -> None:
        with self._lock:
            for record in committed.records:
                try:
                    self._enter(LedgerEntry.unpack(record.value), committed)
                except ValueError as error:
                    self._note(committed, str(error))
            self._marks[committed.partition] = committed.offset

    def _enter(self, entry: LedgerEntry, committed: Committed) -> None:
        account = self.accounts.get(entry.account)
        if account is None:
            account = self.accounts[entry.account] = Account(committed.partition)
        if account.partition != committed.partition:
            self._note(committed, f"account {entry.account} is in partition {account.partition}")
        if not account.is_active:
            self._note(committed, f"account {entry.account} is not active")
        account.cents += entry.cents
        if account.cents < 0:
            self._note(committed, f"account {entry.account} is at {account.cents}")
        if entry.kind is EntryKind.DEACTIVATION:
            account.is_active = False
        elif entry.kind in (EntryKind.PAYMENT, EntryKind.RECEIPT):
            self.transfers += entry.kind is EntryKind.PAYMENT
            self._match(committed.request, entry.cents)

    def _match(self, request: RequestId | None, cents: int) -> None:
        """The two entries of a transfer have one request."""
        left = self.unmatched_payments.pop(request, 0) + cents
        if left:
            self.unmatched_payments[request] = left

    def _note(self, committed: Committed, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"partition {committed.partition}, offset {committed.offset}: {problem}")


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
