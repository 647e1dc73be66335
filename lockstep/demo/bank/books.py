"""The bank's topic: made, opened while brokers may be away, and read from its beginning."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from lockstep.demo.bank.ledger import Ledger
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError, ConnectionFailed
from lockstep.protocol.errors import ErrorCode
from lockstep.transactions import SubscriptionStalled, TransactionClient
from lockstep.transactions.log import Log

CONFIGS: Final = {"lockstep.locks": "true", "lockstep.group": "1", "retention.ms": "-1"}
"""Transfers span partitions, so these are in one log group; records are kept for ever."""
TIMEOUT_S: Final = 60.0
"""The longest time that a broker may be unavailable."""
SETTLE_S: Final = 10.0
"""The longest delay between the two entries of a transfer, which are read from two partitions."""
_PAUSE_S: Final = 0.2


class BankError(Exception):
    """The bank cannot continue; in words for its user."""


async def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Creates the topic if it does not exist. Raises ClientError."""
    async with Client(bootstrap, client_id="bank") as client:
        try:
            await client.create_topic(topic, partitions=partitions, configs=CONFIGS)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


@contextlib.asynccontextmanager
async def open_books(
    bootstrap: str, topic: str, ledger: Ledger, log: Log | None = None
) -> AsyncIterator[TransactionClient]:
    """A client that has read everything. Raises BankError, ClientError."""
    client = await _retry_until_ready(bootstrap, topic, ledger, log)
    try:
        await caught_up(client)
        yield client
    finally:
        await client.close()


async def caught_up(client: TransactionClient) -> None:
    """Raises BankError if a partition cannot be read, or nothing comes any more."""
    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(client.caught_up())
    marks: list[int] = []
    try:
        while not (await asyncio.wait([reading], timeout=_PAUSE_S))[0]:
            before, marks = marks, [client.high_water_mark(each) for each in client.partitions]
            if marks != before:
                deadline = loop.time() + TIMEOUT_S
            elif loop.time() > deadline:
                raise BankError(f"nothing could be read for {TIMEOUT_S:g} s")
        await reading
    except SubscriptionStalled as error:
        raise BankError(f"the books cannot be read: {error}") from None
    finally:
        reading.cancel()


async def audit_books(
    bootstrap: str, topic: str, log: Log | None = None, settle_s: float = SETTLE_S
) -> Ledger:
    """The books, read from their beginning by a new client; its problems are in the ledger."""
    ledger = Ledger()
    async with open_books(bootstrap, topic, ledger, log) as client:
        deadline = asyncio.get_running_loop().time() + settle_s
        while ledger.unmatched_payments and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_PAUSE_S)
            await caught_up(client)
    for request, cents in ledger.unmatched_payments.items():
        ledger.problems.append(f"transfer {request} has one entry, of {cents}")
    return ledger


async def _retry_until_ready(
    bootstrap: str, topic: str, ledger: Ledger, log: Log | None
) -> TransactionClient:
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    while True:
        client = TransactionClient(bootstrap, topic, ledger, log=log)
        try:
            await client.open()
            return client
        except ConnectionFailed:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)
