"""The automatic bank: what it makes of what its tellers say and of what the topic says."""

from __future__ import annotations

import asyncio
import random

import pytest

from lockstep.demo.bank import teller
from lockstep.demo.bank.automatic import OPENING_CENTS, Outcome, evaluate, open_accounts
from lockstep.demo.bank.books import BankError
from lockstep.demo.bank.ledger import Account, Ledger
from lockstep.demo.bank.operations import Deactivation, Withdrawal
from lockstep.demo.bank.teller import TransferOutcomes
from lockstep.testing.memory_log import Fault, MemoryLog
from lockstep.transactions import RefusedForGood
from tests.lockstep.demo.bank.banks import Watched, audit, branch
from tests.support.cases import each_case


def books(cents: int, transfers: int, *problems: str) -> Ledger:
    ledger = Ledger()
    ledger.accounts[1] = Account(1)
    ledger.accounts[1].cents = cents
    ledger.transfers = transfers
    ledger.problems += problems
    return ledger


def test_a_right_outcome() -> None:
    outcomes = [TransferOutcomes(acknowledged=3, refused=1), TransferOutcomes(acknowledged=1, unknown=1)]
    outcome = evaluate(books(100, 2), books(100, 7), outcomes)
    assert outcome == Outcome(5, 100, 100, [], TransferOutcomes(acknowledged=4, refused=1, unknown=1))
    assert outcome.is_consistent
    assert str(outcome) == "transfers=5 before=100 after=100"


@each_case(
    ("after", "outcomes"),
    [
        (books(101, 7), TransferOutcomes(acknowledged=5)),
        (books(100, 2), TransferOutcomes()),
        (books(100, 7), TransferOutcomes(acknowledged=6)),
        (books(100, 7, "partition 0, offset 5: account 1 is at -1"), TransferOutcomes(acknowledged=5)),
        (books(100, 7), None),
    ],
    ids=["totals", "nothing transferred", "acknowledged and lost", "problem", "teller failed"],
)
def test_a_wrong_outcome(after: Ledger, outcomes: TransferOutcomes | None) -> None:
    assert not evaluate(books(100, 2), after, [outcomes]).is_consistent


async def test_accounts_are_opened_once() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        assert await open_accounts(one.client, one.ledger, 3) == [1, 2, 3]
        assert await open_accounts(one.client, one.ledger, 4) == [1, 2, 3, 4]
        await one.does(Withdrawal(one.ledger, 4, OPENING_CENTS))
        await one.does(Deactivation(one.ledger, 2))
        assert await open_accounts(one.client, one.ledger, 4) == [1, 3, 4]
        assert one.ledger.cents == 4 * OPENING_CENTS
        await one.does(Deactivation(one.ledger, 3))
        await one.does(Deactivation(one.ledger, 4))
        with pytest.raises(BankError, match="only 1 may be used"):
            await open_accounts(one.client, one.ledger, 4)


async def test_lines_of_a_teller() -> None:
    memory_log, ledger = MemoryLog(4), Watched()
    async with branch(memory_log, ledger) as one:
        await one.deposits(1, 2, cents=10_000)
        stop = asyncio.Event()
        memory_log.fault_next(Fault.PENDING)
        memory_log.fence_fault_rate = 1.0
        memory_log.refuse_next(2)
        memory_log.fail_next()
        work = asyncio.create_task(teller.transfers(one.client, one.ledger, [1, 2], random.Random(1), stop))
        await ledger.has(5)
        stop.set()
        outcomes = await work
    assert outcomes._replace(acknowledged=0) == TransferOutcomes(refused=2, unknown=1, failed=1)
    found = await audit(memory_log)
    assert outcomes.acknowledged <= found.transfers <= outcomes.acknowledged + 1
    assert TransferOutcomes.parse(str(outcomes)) == outcomes


async def test_a_teller_gives_up_where_nothing_can_pass() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
        memory_log.refuse_next(reason="OTHER_GROUP", is_final=True)
        with pytest.raises(RefusedForGood):
            await teller.transfers(one.client, one.ledger, [1, 2], random.Random(1), asyncio.Event())


@each_case("line", ["", "hello", "acknowledged=1", "acknowledged=1 declined=x"])
def test_lines_that_no_teller_prints(line: str) -> None:
    with pytest.raises(ValueError, match=r"teller|int"):
        TransferOutcomes.parse(line)
