"""The live table."""

from __future__ import annotations

from lockstep.demo.bank.ledger import EntryKind, LedgerEntry
from lockstep.demo.bank.table import redraw, render
from lockstep.transactions import RequestId
from tests.lockstep.demo.bank.test_ledger import applied, apply


def test_accounts_and_totals() -> None:
    ledger = applied(LedgerEntry(EntryKind.DEPOSIT, 2, 500), LedgerEntry(EntryKind.DEACTIVATION, 2))
    apply(ledger, LedgerEntry(EntryKind.DEPOSIT, 1, 100), partition=1)
    apply(ledger, LedgerEntry(EntryKind.PAYMENT, 1, -40, 2), partition=1, request=RequestId("ann", 1, 1))
    assert render(ledger, 2.0, 10).splitlines() == [
        "account  partition         cents",
        "      1          1            60",
        "      2          0           500  not active",
        "  total                      560  and 40 between partitions",
        "10 transfers in 2 s, 5/s",
    ]


def test_it_is_drawn_over_what_was_there() -> None:
    assert redraw("one\ntwo", "") == "one\ntwo\n"
    assert redraw("one\ntwo", "a\nb\nc") == "\x1b[3F\x1b[Jone\ntwo\n"
