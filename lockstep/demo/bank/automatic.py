"""The automatic bank: processes transfer between few accounts, the topic is audited before and after."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstep.demo.bank.books import BankError, audit_books, caught_up, open_books
from lockstep.demo.bank.ledger import Ledger
from lockstep.demo.bank.operations import Deposit
from lockstep.demo.bank.table import redraw, render
from lockstep.demo.bank.teller import TransferOutcomes
from lockstep.transactions import TransactionClient

OPENING_CENTS: Final = 10_000
"""The first balance of an account."""
REDRAW_S: Final = 0.5
_END_S: Final = 120.0
"""The time in which a teller finishes its transfers under way: longer than any of them may take."""


class Outcome(NamedTuple):
    """The outcome of a run, as the topic shows it."""

    transfers: int
    before: int
    after: int
    problems: Sequence[str]
    outcomes: TransferOutcomes

    @property
    def is_consistent(self) -> bool:
        return self.before == self.after and self.transfers > 0 and not self.problems

    def __str__(self) -> str:
        return f"transfers={self.transfers} before={self.before} after={self.after}"


async def run(
    bootstrap: str,
    topic: str,
    *,
    accounts: int,
    processes: int,
    stop: asyncio.Event,
    seconds: float | None = None,
    has_table: bool = False,
) -> Outcome:
    """Runs until `stop`, or for some seconds. Raises BankError, ClientError, TransactionError."""
    ledger = Ledger()
    async with open_books(bootstrap, topic, ledger) as client:
        used = await open_accounts(client, ledger, accounts)
        before = await audit_books(bootstrap, topic)
        tellers = [await _start(bootstrap, topic, seed, used) for seed in range(processes)]
        try:
            await asyncio.gather(*map(_ready, tellers))
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, stop.set)
            await _until(stop, tellers, ledger, before.transfers, has_table)
        finally:
            outcomes = await asyncio.gather(*map(_finish, tellers))
    return evaluate(before, await audit_books(bootstrap, topic), outcomes)


async def open_accounts(client: TransactionClient, ledger: Ledger, accounts: int) -> list[int]:
    """The first accounts, as far as they are active, each with some money. Raises BankError."""
    for number in range(1, accounts + 1):
        account = ledger.accounts.get(number)
        if account is None or (account.is_active and not account.cents):
            await client.execute(Deposit(ledger, number, OPENING_CENTS))
    await caught_up(client)
    used = [number for number in ledger.active() if 1 <= number <= accounts]
    if len(used) < 2:
        raise BankError(f"of accounts 1 to {accounts} only {len(used)} may be used, and a transfer takes two")
    return used


def evaluate(before: Ledger, after: Ledger, outcomes: Sequence[TransferOutcomes | None]) -> Outcome:
    """`outcomes`: by each teller; None for one that failed."""
    problems = list(after.problems)
    total = TransferOutcomes()
    for number, each in enumerate(outcomes):
        if each is None:
            problems.append(f"teller {number} failed")
        else:
            total = total.plus(each)
    made = after.transfers - before.transfers
    if made < total.acknowledged:
        problems.append(f"{total.acknowledged} transfers were acknowledged")
    return Outcome(made, before.cents, after.cents, problems, total)


async def _until(
    stop: asyncio.Event,
    tellers: Sequence[asyncio.subprocess.Process],
    ledger: Ledger,
    transfers_before: int,
    has_table: bool,
) -> None:
    """Waits until `stop`, or until a teller ends, which none does by itself."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    drawn = ""
    waiting = [asyncio.ensure_future(stop.wait()), *(asyncio.ensure_future(each.wait()) for each in tellers)]
    try:
        while not (await asyncio.wait(waiting, timeout=REDRAW_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            if has_table:
                text = render(ledger, loop.time() - began, ledger.transfers - transfers_before)
                sys.stdout.write(redraw(text, drawn))
                sys.stdout.flush()
                drawn = text
    finally:
        for each in waiting:
            each.cancel()


async def _start(
    bootstrap: str, topic: str, seed: int, accounts: Sequence[int]
) -> asyncio.subprocess.Process:
    words = [bootstrap, topic, str(seed * 1000), *map(str, accounts)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lockstep.demo.bank.teller",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _ready(teller: asyncio.subprocess.Process) -> None:
    """Returns, too, if it ends instead."""
    assert teller.stdout is not None
    await teller.stdout.readline()


async def _finish(teller: asyncio.subprocess.Process) -> TransferOutcomes | None:
    """Closes its standard input and waits for its last line; None where it has none."""
    try:
        assert teller.stdin is not None
        teller.stdin.close()
        async with asyncio.timeout(_END_S):
            out, _ = await teller.communicate()
        return TransferOutcomes.parse(out.decode().splitlines()[-1])
    except (TimeoutError, IndexError, ValueError):
        return None
    finally:
        if teller.returncode is None:
            teller.kill()
