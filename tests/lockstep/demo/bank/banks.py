"""Clients of one bank on a log in memory, and somebody who breaks its rules."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from lockstep.demo.bank.books import audit_books, open_books
from lockstep.demo.bank.ledger import Ledger, LedgerEntry
from lockstep.demo.bank.operations import Deposit, Operation
from lockstep.testing.memory_log import MemoryLog
from lockstep.transactions import Committed, Draft, Transaction, TransactionClient


class Branch:
    """A client of the bank, and its books."""

    def __init__(self, client: TransactionClient, ledger: Ledger) -> None:
        self.client = client
        self.ledger = ledger

    async def does(self, operation: Operation) -> str | None:
        """Why it was declined; None if it was done."""
        appended = await self.client.execute(operation, timeout_s=30.0)
        assert (appended is None) == (operation.declined is not None)
        return operation.declined

    async def deposits(self, *accounts: int, cents: int = 100) -> None:
        for account in accounts:
            assert await self.does(Deposit(self.ledger, account, cents)) is None


class Watched(Ledger):
    """Says when it has seen so many transfers."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: list[tuple[int, asyncio.Event]] = []

    def apply(self, committed: Committed) -> None:
        super().apply(committed)
        for count, event in self._wanted:
            if self.transfers >= count:
                event.set()

    async def has(self, transfers: int) -> None:
        if self.transfers < transfers:
            event = asyncio.Event()
            self._wanted.append((transfers, event))
            await asyncio.wait_for(event.wait(), 60.0)


class Forged(Transaction):
    """An entry without any condition: what no operation of the bank appends."""

    def __init__(self, entry: LedgerEntry, partition: int) -> None:
        self.entry = entry
        self.number = partition

    def partition(self, partitions: int) -> int:
        return self.number

    def execute(self, draft: Draft) -> None:
        draft.add(self.entry.pack())


@contextlib.asynccontextmanager
async def branch(memory_log: MemoryLog, ledger: Ledger | None = None) -> AsyncIterator[Branch]:
    ledger = ledger or Ledger()
    async with open_books("", "bank", ledger, memory_log.connect()) as client:
        yield Branch(client, ledger)


async def audit(memory_log: MemoryLog) -> Ledger:
    return await audit_books("", "bank", memory_log.connect(), settle_s=0.0)
