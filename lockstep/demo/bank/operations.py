"""The operations on accounts: transactions, each with the locks that make it correct (see the package)."""

from __future__ import annotations

from typing import Final

from lockstep.demo.bank.ledger import EntryKind, Ledger, LedgerEntry
from lockstep.transactions import Draft, Refusal, Transaction, lock

MAX_CENTS: Final = 10**12
MAX_ACCOUNTS: Final = 10**6


def account_lock(account: int) -> bytes:
    """The lock that the deactivation of an account raises."""
    return lock("account", account)


def withdrawal_lock(account: int) -> bytes:
    """The lock that every payment out of an account raises."""
    return lock("withdrawal", account)


class Operation(Transaction):
    """On one account, and at times on a second one. ValueError for invalid numbers."""

    def __init__(self, ledger: Ledger, account: int, cents: int = 1) -> None:
        _check(account, cents)
        self.ledger = ledger
        self.account = account
        self.cents = cents
        self.declined: str | None = None
        """The reason why the bank declined it; empty where it did not."""
        self.refusals = 0
        """The number of times that a concurrent transaction was faster."""

    def partition(self, partitions: int) -> int:
        return self.account % partitions

    def on_refusal(self, refusal: Refusal) -> None:
        self.refusals += 1

    def decline(self, reason: str) -> bool:
        self.declined = reason
        return False

    def is_usable(self, account: int) -> bool:
        """Declines it otherwise."""
        existing = self.ledger.accounts.get(account)
        if existing is None:
            return self.decline(f"there is no account {account}")
        return existing.is_active or self.decline(f"account {account} is not active")

    def has_enough(self) -> bool:
        """Declines it otherwise."""
        cents = self.ledger.accounts[self.account].cents
        return cents >= self.cents or self.decline(f"account {self.account} has {cents}")


class Deposit(Operation):
    """Opens the account if need be."""

    def execute(self, draft: Draft) -> bool:
        if self.account in self.ledger.accounts and not self.is_usable(self.account):
            return False
        draft.read_lock(account_lock(self.account))
        draft.add(LedgerEntry(EntryKind.DEPOSIT, self.account, self.cents).pack())
        return True


class Withdrawal(Operation):
    def execute(self, draft: Draft) -> bool:
        if not (self.is_usable(self.account) and self.has_enough()):
            return False
        draft.write_lock(withdrawal_lock(self.account))
        draft.read_lock(account_lock(self.account))
        draft.add(LedgerEntry(EntryKind.WITHDRAWAL, self.account, -self.cents).pack())
        return True


class Deactivation(Operation):
    """Closes an account permanently; its balance stays."""

    def execute(self, draft: Draft) -> bool:
        if not self.is_usable(self.account):
            return False
        draft.write_lock(account_lock(self.account))
        draft.add(LedgerEntry(EntryKind.DEACTIVATION, self.account).pack())
        return True


class BankTransfer(Operation):
    """From `account` to `payee`."""

    def __init__(self, ledger: Ledger, account: int, payee: int, cents: int) -> None:
        super().__init__(ledger, account, cents)
        _check(payee, cents)
        if account == payee:
            raise ValueError(f"account {account} cannot pay itself")
        self.payee = payee

    def execute(self, draft: Draft) -> bool:
        if not (self.is_usable(self.account) and self.is_usable(self.payee) and self.has_enough()):
            return False
        draft.write_lock(withdrawal_lock(self.account))
        draft.read_lock(account_lock(self.account))
        draft.add(LedgerEntry(EntryKind.PAYMENT, self.account, -self.cents, self.payee).pack())
        payee_partition = self.payee % draft.partitions
        draft.read_lock(account_lock(self.payee), partition=payee_partition)
        draft.add(
            LedgerEntry(EntryKind.RECEIPT, self.payee, self.cents, self.account).pack(),
            partition=payee_partition,
        )
        return True


def _check(account: int, cents: int) -> None:
    if not 0 <= account < MAX_ACCOUNTS:
        raise ValueError(f"account {account}: from 0 to {MAX_ACCOUNTS - 1}")
    if not 0 < cents <= MAX_CENTS:
        raise ValueError(f"{cents} cents: from 1 to {MAX_CENTS}")
