"""Entries, the accounts that come of them, and what an auditor finds."""

from __future__ import annotations

import pytest

from lockstep.demo.bank.ledger import MAX_PROBLEMS, EntryKind, Ledger, LedgerEntry
from lockstep.transactions import Committed, RequestId
from lockstep.transactions.model import Record
from tests.support.cases import each_case

TRANSFER = RequestId("ann", 1, 1)


def applied(*entries: LedgerEntry | bytes, partition: int = 0, request: RequestId | None = None) -> Ledger:
    ledger = Ledger()
    apply(ledger, *entries, partition=partition, request=request)
    return ledger


def apply(
    ledger: Ledger, *entries: LedgerEntry | bytes, partition: int = 0, request: RequestId | None = None
) -> None:
    for entry in entries:
        value = entry.pack() if isinstance(entry, LedgerEntry) else entry
        offset = ledger.high_water_mark(partition) + 1
        ledger.apply(Committed(partition, offset, (Record(value),), request=request))


@each_case(
    "entry",
    [
        LedgerEntry(EntryKind.DEPOSIT, 1, 100),
        LedgerEntry(EntryKind.PAYMENT, 1, -5, 2),
        LedgerEntry(EntryKind.RECEIPT, 2, 5, 1),
        LedgerEntry(EntryKind.DEACTIVATION, 3),
    ],
)
def test_an_entry_comes_back_as_it_was(entry: LedgerEntry) -> None:
    assert LedgerEntry.unpack(entry.pack()) == entry


@each_case(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"5",
        b"[]",
        b"{}",
        b'{"kind":"gift","account":1,"cents":1}',
        b'{"kind":"deposit","account":"1","cents":1}',
        b'{"kind":"deposit","account":1,"cents":1.5}',
        b'{"kind":"deposit","account":1,"cents":-1}',
        b'{"kind":"withdrawal","account":1,"cents":1}',
        b'{"kind":"deposit","account":1,"cents":1,"more":1}',
        b'{"kind":"deposit","account":true,"cents":1}',
    ],
)
def test_what_is_no_entry(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not an entry of the bank"):
        LedgerEntry.unpack(value)


def test_balances() -> None:
    ledger = applied(
        LedgerEntry(EntryKind.DEPOSIT, 1, 100),
        LedgerEntry(EntryKind.DEPOSIT, 2, 7),
        LedgerEntry(EntryKind.WITHDRAWAL, 1, -30),
        LedgerEntry(EntryKind.DEACTIVATION, 2),
    )
    assert {number: account.cents for number, account in ledger.accounts.items()} == {1: 70, 2: 7}
    assert (ledger.cents, ledger.active(), ledger.problems) == (77, [1], [])
    assert (ledger.high_water_mark(0), ledger.high_water_mark(1)) == (3, -1)


@each_case("payer_first", [True, False])
def test_the_halves_of_a_transfer_come_in_either_order(payer_first: bool) -> None:
    ledger = applied(LedgerEntry(EntryKind.DEPOSIT, 1, 100))
    halves = [(LedgerEntry(EntryKind.PAYMENT, 1, -40, 2), 0), (LedgerEntry(EntryKind.RECEIPT, 2, 40, 1), 1)]
    (first, its), (second, others) = halves if payer_first else halves[::-1]
    apply(ledger, first, partition=its, request=TRANSFER)
    assert ledger.unmatched_payments == {TRANSFER: first.cents}
    apply(ledger, second, partition=others, request=TRANSFER)
    assert (ledger.unmatched_payments, ledger.transfers, ledger.cents) == ({}, 1, 100)
    assert ledger.problems == []


def test_halves_of_two_transfers_are_not_one() -> None:
    ledger = applied(LedgerEntry(EntryKind.DEPOSIT, 1, 100))
    apply(ledger, LedgerEntry(EntryKind.PAYMENT, 1, -40, 2), request=TRANSFER)
    apply(ledger, LedgerEntry(EntryKind.RECEIPT, 2, 40, 1), request=TRANSFER._replace(sequence=2))
    assert len(ledger.unmatched_payments) == 2


@each_case(
    ("entries", "problem"),
    [
        ([LedgerEntry(EntryKind.WITHDRAWAL, 1, -1)], "offset 0: account 1 is at -1"),
        (
            [LedgerEntry(EntryKind.DEPOSIT, 1, 5), LedgerEntry(EntryKind.PAYMENT, 1, -6, 2)],
            "offset 1: account 1 is at -1",
        ),
        (
            [LedgerEntry(EntryKind.DEACTIVATION, 1), LedgerEntry(EntryKind.RECEIPT, 1, 6, 2)],
            "offset 1: account 1 is not active",
        ),
        (
            [LedgerEntry(EntryKind.DEACTIVATION, 1), LedgerEntry(EntryKind.DEACTIVATION, 1)],
            "offset 1: account 1 is not active",
        ),
        ([b"hello"], "offset 0: not an entry of the bank: b'hello'"),
    ],
)
def test_a_broken_invariant_is_noted(entries: list[LedgerEntry | bytes], problem: str) -> None:
    ledger = applied(*entries)
    assert ledger.problems == [f"partition 0, {problem}"]
    assert ledger.high_water_mark(0) == len(entries) - 1


def test_an_account_that_moved_is_noted() -> None:
    ledger = applied(LedgerEntry(EntryKind.DEPOSIT, 1, 5), partition=1)
    apply(ledger, LedgerEntry(EntryKind.DEPOSIT, 1, 5), partition=3)
    assert ledger.problems == ["partition 3, offset 0: account 1 is in partition 1"]


def test_problems_in_words_are_bounded() -> None:
    assert len(applied(*[b"hello"] * 50).problems) == MAX_PROBLEMS
