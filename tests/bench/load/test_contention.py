"""A client of contention: its window, its deposits, updates that are lost."""

from __future__ import annotations

import time

from bench.load.contention import Accounts, Deposit, Window
from lockstep.transactions import Committed, Draft, Refusal
from lockstep.transactions.model import Record

S = 1_000_000_000


def test_only_the_window_is_counted_and_the_time_without_success_at_its_edges_is() -> None:
    window = Window(10 * S, 20 * S)
    window.record_conflict(9 * S)
    window.record_success(8 * S, 9 * S)
    window.record_conflict(11 * S)
    window.record_success(9 * S, 13 * S)
    window.record_success(13 * S, 14 * S)
    window.record_conflict(21 * S)
    window.record_success(19 * S, 21 * S)
    result = window.result()
    assert (result["total"], result["successes"], result["refusals"]) == (4, 2, 1)
    assert result["longest_wait_s"] == 6.0
    assert result["latencies_ns"] == [4 * S, 1 * S]
    assert Window(0, 5 * S).result()["longest_wait_s"] == 5.0


def test_a_deposit_requests_its_lock_and_counts_its_rejections() -> None:
    accounts, window = Accounts(), Window(0, time.monotonic_ns() + 100 * S)
    accounts.balances[4] = 8
    deposit, draft = Deposit(accounts, 4, window), Draft(0, 1)
    deposit.execute(draft)
    assert draft.parts[0].write_locks == [b"account/4"]
    assert [record.value for record in draft.parts[0].records] == [b"4 9"]
    deposit.on_refusal(Refusal("LOCK", False, 0, 3, True, b"account/4", "no"))
    assert window.result()["refusals"] == 1


def test_an_update_that_did_not_see_the_one_before_is_lost() -> None:
    accounts = Accounts()
    for offset, value in enumerate((b"7 1", b"7 2", b"8 1", b"7 2")):
        accounts.apply(Committed(0, offset, (Record(value),)))
    assert (accounts.lost, accounts.balances, accounts.high_water_mark(0)) == (1, {7: 2, 8: 1}, 3)
