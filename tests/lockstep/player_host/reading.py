"""Reading from a source: what it brings to the end, a read that waits, records that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lockstep.broker.server import Broker
from lockstep.player.core.messages import Entry
from lockstep.player.source.interface import LogChunk, Source
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.records.record import Record, iter_records
from tests.broker.wire import Client

LONG_S = 30.0
"""A wait that nothing but what is waited for ends."""


def records(entries: Sequence[Entry]) -> list[Record]:
    found: list[Record] = []
    for entry in entries:
        assert isinstance(entry.payload, bytes)
        found += iter_records(entry.payload)
    return found


def values(entries: Sequence[Entry]) -> list[bytes | None]:
    return [record.value for record in records(entries)]


async def everything(source: Source, first: int = 0, max_bytes: int = 1 << 20) -> list[Entry]:
    """Read until there is nothing more; each read must bring it further."""
    found: list[Entry] = []
    while True:
        chunk = await source.read(first, max_bytes, 0)
        if chunk.through_position < first:
            assert not chunk.entries
            return found
        assert all(first <= each.position <= chunk.through_position for each in chunk.entries)
        found += chunk.entries
        first = chunk.through_position + 1


async def waits(broker: Broker, reading: asyncio.Task[LogChunk]) -> None:
    """Until a read has begun to wait."""
    async with asyncio.timeout(LONG_S):
        while not broker.assembly.fetch_purgatory.count:
            assert not reading.done()
            await asyncio.sleep(0)


async def delete_records(client: Client, partition: int, offset: int) -> None:
    """Those of the topic "t" below the offset."""
    told = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[told])], timeout_ms=5_000)
    answer = await client.call(request, 2)
    assert answer.topics[0].partitions[0].error_code == 0
