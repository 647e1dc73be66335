"""What a person types, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockstep.demo.bank.commands import run_command
from lockstep.demo.bank.ledger import Ledger
from lockstep.testing.memory_log import Fault, MemoryLog
from lockstep.transactions import BlockingTransactionClient

Type = Callable[[str], str | None]


@pytest.fixture
def memory_log() -> MemoryLog:
    return MemoryLog(4)


@pytest.fixture
def typed(memory_log: MemoryLog) -> Iterator[Type]:
    ledger = Ledger()
    with BlockingTransactionClient("", "bank", ledger, log=memory_log.connect) as client:
        yield lambda line: run_command(line, ledger, client)


def test_a_session(typed: Type) -> None:
    assert typed("deposit 1 100") == "done at 1/0; account 1 has 100"
    assert typed("  deposit 2  5 ") == "done at 2/0; account 2 has 5"
    assert typed("transfer 1 2 60") == "done at 1/1, 2/1; account 1 has 40"
    assert typed("transfer 1 2 60") == "declined: account 1 has 40"
    assert typed("withdraw 2 65") == "done at 2/2; account 2 has 0"
    assert typed("deactivate 2") == "done at 2/3; account 2 has 0, not active"
    assert typed("balance 2") == "account 2 has 0, not active"
    assert typed("deposit 2 5") == "declined: account 2 is not active"
    assert typed("total") == "total 40"
    assert typed("") == ""
    assert "transfer PAYER PAYEE CENTS" in (typed("help") or "")
    assert typed("quit") is None
    assert typed("exit") is None


@pytest.mark.parametrize(
    ("line", "outcomes"),
    [
        ("steal 1 2", "there is no command 'steal'; try help"),
        ("deposit 1", "deposit takes 2 numbers; try help"),
        ("deposit 1 2 3", "deposit takes 2 numbers; try help"),
        ("balance", "balance takes 1 number; try help"),
        ("total 1", "total takes no numbers; try help"),
        ("deposit one 2", "'one' is not a whole number; money is in cents"),
        ("deposit 1 2.50", "'2.50' is not a whole number; money is in cents"),
        ("deposit 1 -5", "'-5' is not a whole number; money is in cents"),
        ("deposit 1 ²", "'²' is not a whole number; money is in cents"),
        ("deposit 1 " + "9" * 5000, "'" + "9" * 5000 + "' is not a whole number; money is in cents"),
        ("deposit 1 0", "0 cents: from 1 to 1000000000000"),
        ("deposit 1000000 1", "account 1000000: from 0 to 999999"),
        ("transfer 1 1 5", "account 1 cannot pay itself"),
        ("balance 7", "there is no account 7"),
    ],
)
def test_bad_input_is_one_line(typed: Type, memory_log: MemoryLog, line: str, outcomes: str) -> None:
    assert typed(line) == f"error: {outcomes}"
    assert [memory_log.end(partition) for partition in range(4)] == [0] * 4


def test_what_the_log_does_not_take(typed: Type, memory_log: MemoryLog) -> None:
    memory_log.fail_next()
    assert typed("deposit 1 1") == "error: as the test wants it"
    memory_log.expire_next()
    assert typed("deposit 1 1") == "error: it was not done: as the test wants it"
    memory_log.fault_next(Fault.PENDING)
    memory_log.fence_fault_rate = 1.0
    assert (typed("deposit 1 1") or "").startswith("error: it is not known yet whether it was done: ")
    memory_log.refuse_next()
    assert (typed("deposit 2 1") or "").startswith("done at 2/0, after 2 tries; ")
