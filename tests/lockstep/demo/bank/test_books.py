"""Audits: what is wrong in the topic is found by whoever reads it from its beginning."""

from __future__ import annotations

import pytest

from lockstep.demo.bank import books
from lockstep.demo.bank.books import BankError, audit_books, make_topic, open_books
from lockstep.demo.bank.ledger import EntryKind, Ledger, LedgerEntry
from lockstep.demo.bank.operations import BankTransfer
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import ClientError
from lockstep.testing import RunningBroker
from lockstep.testing.memory_log import MemoryConnection, MemoryLog
from tests.lockstep.demo.bank.banks import Forged, audit, branch
from tests.support.cases import each_case


@each_case(
    ("entry", "problem"),
    [
        (LedgerEntry(EntryKind.PAYMENT, 1, -40, 2), "has one entry, of -40"),
        (LedgerEntry(EntryKind.RECEIPT, 1, 40, 2), "has one entry, of 40"),
        (LedgerEntry(EntryKind.WITHDRAWAL, 1, -101), "account 1 is at -1"),
    ],
)
async def test_a_planted_entry_is_found(entry: LedgerEntry, problem: str) -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
        assert (await audit(memory_log)).problems == []
        await one.client.execute(Forged(entry, 1))
    ledger = await audit(memory_log)
    assert len(ledger.problems) == 1 and problem in ledger.problems[0]
    assert ledger.cents == 200 + entry.cents


class Behind(MemoryConnection):
    """Partition 2 looks empty at first."""

    asked = 0

    async def end(self, partition: int) -> int:
        if partition == 2:
            self.asked += 1
            if self.asked == 1:
                return 0
            self.resume_subscription(2)
        return await super().end(partition)


async def test_an_audit_waits_for_the_second_entry_of_a_transfer() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
        await one.does(BankTransfer(one.ledger, 1, 2, 5))
    connection = Behind(memory_log)
    connection.suspend_subscription(2)
    ledger = await audit_books("", "bank", connection)
    assert connection.asked == 2
    assert (ledger.cents, ledger.problems) == (200, [])


async def test_books_of_which_the_beginning_is_gone() -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
    memory_log.trim(1, 1)
    with pytest.raises(BankError, match=r"cannot be read: partition 1 is stalled.*memory-1 begins at 1"):
        await audit(memory_log)


async def test_books_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_log = MemoryLog(4)
    async with branch(memory_log) as one:
        await one.deposits(1, 2)
    memory_log.suspend_subscription(1)
    monkeypatch.setattr(books, "TIMEOUT_S", 0.1)
    with pytest.raises(BankError, match="nothing could be read"):
        await audit(memory_log)


async def test_a_topic_is_made_once(running: RunningBroker, topic: str) -> None:
    for partitions in (3, 5):
        await make_topic(running.bootstrap_servers, topic, partitions)
    async with open_books(running.bootstrap_servers, topic, Ledger()) as client:
        assert client.partition_count == 3


async def test_a_topic_without_locks_is_none(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        await client.create_topic(topic)
    await make_topic(running.bootstrap_servers, topic, 3)
    with pytest.raises(ClientError, match=r"lockstep\.locks=ignore"):
        async with open_books(running.bootstrap_servers, topic, Ledger()):
            pass
