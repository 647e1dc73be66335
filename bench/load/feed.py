"""Filling a topic with transactions, and reading them as a client's feed does, without looking at bodies."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from bench.load.wire import UnexpectedResponse
from bench.machine.process import microseconds
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.transactions import RequestId, lock
from lockstep.transactions.log import AppendAttempt, PartitionBatch
from lockstep.transactions.model import Record
from lockstep.transactions.records import ProducerIdentity, batch_of
from lockstep.transactions.remote import RemoteLog

WINDOW: Final = 64
"""Transactions under way while a topic is filled; each is a batch of its own."""
APPEND_TIMEOUT_S: Final = 30.0
READ_WAIT_S: Final = 0.5
CLIENT: Final = "bench"

Result = dict[str, Any]


def fill_feed(job: Result) -> Result:
    """`transactions` with bodies of `body_bytes`; what one is on the wire, and what projecting it takes."""
    return asyncio.run(_fill(job))


def read_feed(job: Result) -> Result:
    """From the beginning to the end, again and again for `seconds` after `warmup_s`. UnexpectedResponse."""
    return asyncio.run(_read(job))


def transaction(number: int, body_bytes: int) -> AppendAttempt:
    """One record under a write lock of its own."""
    record = Record(b"x" * body_bytes, headers=(("type", b"deposit"),))
    part = PartitionBatch((record,), -1, write_locks=(lock("account", number),))
    return AppendAttempt(RequestId(CLIENT, 0, number), {0: part})


def without_values(batch: bytes) -> bytes:
    """The batch without its records' values: the least that a broker would have to do to leave them out."""
    header = read_header(batch)
    builder = BatchBuilder(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    for record in iter_records(batch):
        builder.append(None, record.key, timestamp_ms=record.timestamp, headers=record.headers)
    return builder.build(header.base_offset)


async def _fill(job: Result) -> Result:
    log = RemoteLog(job["bootstrap"], job["topic"], CLIENT)
    numbers = iter(range(job["transactions"]))

    async def append() -> None:
        for number in numbers:
            await log.append(transaction(number, job["body_bytes"]), APPEND_TIMEOUT_S)

    try:
        await log.open()
        await asyncio.gather(*(append() for _ in range(WINDOW)))
    finally:
        await log.close()
    request, parts = transaction(0, job["body_bytes"])
    batch = batch_of(parts[0], request, ProducerIdentity(0, 0, 0), job["topic"], bytes(16), 0)
    return {"batch_bytes": len(batch), "project_us": microseconds(lambda: without_values(batch))}


async def _read(job: Result) -> Result:
    log = RemoteLog(job["bootstrap"], job["topic"], CLIENT)
    try:
        await log.open()
        end = await log.end(0)
        warming = await _passes(log, end, job["transactions"], job["warmup_s"])
        cpu_s, began = time.process_time(), time.perf_counter()
        passes = await _passes(log, end, job["transactions"], job["seconds"])
        used_s, took_s = time.process_time() - cpu_s, time.perf_counter() - began
    finally:
        await log.close()
    count = passes * job["transactions"]
    return {
        "all_transactions": count + warming * job["transactions"],
        "transactions_per_s": count / took_s,
        "client_us": used_s / count * 1e6,
        "seconds": took_s,
    }


async def _passes(log: RemoteLog, end: int, expected: int, seconds: float) -> int:
    """Whole passes, at least one; how many."""
    passes, until = 0, time.perf_counter() + seconds
    while True:
        position = found = 0
        while position < end:
            chunk = await log.read(0, position, READ_WAIT_S)
            found += len(chunk.entries)
            position = chunk.position
        if found != expected:
            raise UnexpectedResponse(f"{found} transactions read, {expected} written")
        passes += 1
        if time.perf_counter() >= until:
            return passes
