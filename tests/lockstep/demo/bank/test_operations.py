"""What the locks of each operation are good for, on a log in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from lockstep.demo.bank.books import open_books
from lockstep.demo.bank.ledger import Ledger
from lockstep.demo.bank.operations import BankTransfer, Deactivation, Deposit, Operation, Withdrawal
from lockstep.testing.memory_log import MemoryLog
from lockstep.transactions import Refusal
from tests.lockstep.demo.bank.banks import Branch, audit, branch
from tests.support.cases import each_case


async def test_each_operation_once() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2, 6)
        assert await one.does(Withdrawal(one.ledger, 1, 30)) is None
        assert await one.does(BankTransfer(one.ledger, 1, 2, 70)) is None
        assert await one.does(BankTransfer(one.ledger, 2, 6, 5)) is None  # in one partition
        assert await one.does(Deactivation(one.ledger, 6)) is None
        assert {number: account.cents for number, account in one.ledger.accounts.items()} == {
            1: 0,
            2: 165,
            6: 105,
        }
    ledger = await audit(memory_log)
    assert (ledger.cents, ledger.transfers, ledger.problems) == (270, 2, [])


async def test_what_the_bank_declines() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
        await one.does(Deactivation(one.ledger, 2))
        ends = [memory_log.end(partition) for partition in range(4)]
        declined: list[tuple[Operation, str]] = [
            (Withdrawal(one.ledger, 1, 101), "account 1 has 100"),
            (Withdrawal(one.ledger, 3, 1), "there is no account 3"),
            (BankTransfer(one.ledger, 1, 3, 1), "there is no account 3"),
            (BankTransfer(one.ledger, 1, 2, 1), "account 2 is not active"),
            (BankTransfer(one.ledger, 2, 1, 1), "account 2 is not active"),
            (Deposit(one.ledger, 2, 1), "account 2 is not active"),
            (Deactivation(one.ledger, 2), "account 2 is not active"),
        ]
        for operation, reason in declined:
            assert await one.does(operation) == reason
        assert ends == [memory_log.end(partition) for partition in range(4)]


async def test_what_a_transfer_raises() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
        await one.does(BankTransfer(one.ledger, 1, 2, 5))
    assert memory_log.lock_version(1, "withdrawal/1") == 1
    raised = [memory_log.lock_version(1, "account/1"), memory_log.lock_version(2, "account/2")]
    assert raised == [-1, -1] and memory_log.lock_version(2, "withdrawal/2") == -1


async def test_two_branches_do_not_spend_the_same_money() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one, branch(memory_log) as other:
        await one.deposits(1, 2)
        await other.client.caught_up()
        outcomes = await asyncio.gather(
            one.does(Withdrawal(one.ledger, 1, 80)), other.does(BankTransfer(other.ledger, 1, 2, 80))
        )
    assert sorted(outcomes, key=str) == [None, "account 1 has 20"]
    assert (await audit(memory_log)).problems == []


@pytest.mark.parametrize(
    ("make", "closed"),
    [
        (lambda ledger: BankTransfer(ledger, 1, 2, 5), 2),
        (lambda ledger: BankTransfer(ledger, 1, 2, 5), 1),
        (lambda ledger: Withdrawal(ledger, 1, 5), 1),
        (lambda ledger: Deposit(ledger, 1, 5), 1),
        (lambda ledger: Deactivation(ledger, 1), 1),
    ],
    ids=["payee", "payer", "withdrawal", "deposit", "deactivation"],
)
async def test_an_account_that_was_deactivated_elsewhere_refuses(
    make: Callable[[Ledger], Operation], closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: asyncio.Queue[Refusal] = asyncio.Queue()
    monkeypatch.setattr(Operation, "on_refusal", lambda _, refusal: heard.put_nowait(refusal))
    memory_log, ledger = MemoryLog(4), Ledger()
    connection = memory_log.connect()
    async with branch(memory_log) as one, open_books("", "bank", ledger, connection) as client:
        await one.deposits(1, 2)
        await client.caught_up()
        connection.suspend_subscription(closed)
        await one.does(Deactivation(one.ledger, closed))
        operation = make(ledger)
        under_way = await client.submit(operation)
        refusal = await asyncio.wait_for(heard.get(), 10.0)
        assert (refusal.partition, refusal.lock) == (closed, b"account/%d" % closed)
        connection.resume_subscription(closed)
        assert await under_way is None
    assert operation.declined == f"account {closed} is not active"
    assert memory_log.end(1) + memory_log.end(2) == 3


@each_case("wrong", [(-1, 1), (10**6, 1), (1, 0), (1, -5), (1, 10**12 + 1)])
def test_numbers_that_cannot_be_meant(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="from"):
        Deposit(Ledger(), *wrong)
    with pytest.raises(ValueError, match="itself"):
        BankTransfer(Ledger(), 1, 1, 1)


@each_case("seed", range(8))
async def test_random_operations_of_several_branches_under_faults(seed: int) -> None:
    memory_log = MemoryLog(3, seed=seed)
    async with AsyncExitStack() as stack:
        branches = [await stack.enter_async_context(branch(memory_log)) for _ in range(3)]
        await branches[0].deposits(1, 2, 3, 4)
        memory_log.fault_rate, memory_log.gap_rate, memory_log.max_delay_s = 0.2, 0.1, 0.001
        sums = await asyncio.gather(*(_busy(each, random.Random(seed)) for each in branches))
    ledger = await audit(memory_log)
    assert ledger.problems == []
    assert ledger.cents == 400 + sum(sums)
    assert ledger.transfers > 0


async def _busy(own: Branch, chosen: random.Random) -> int:
    """Forty operations; what they brought into the bank."""
    brought = 0
    for number in range(40):
        payer, payee = chosen.sample((1, 2, 3, 4), 2)
        cents = chosen.randint(1, 60)
        if number == 20:
            await own.does(Deactivation(own.ledger, 4))
        elif number % 5 == 0:
            brought -= cents * (await own.does(Withdrawal(own.ledger, payer, cents)) is None)
        elif number % 5 == 1:
            brought += cents * (await own.does(Deposit(own.ledger, payer, cents)) is None)
        else:
            await own.does(BankTransfer(own.ledger, payer, payee, cents))
    return brought
