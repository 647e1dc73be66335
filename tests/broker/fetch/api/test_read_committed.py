"""Readers of committed records over a real broker: Fetch, ListOffsets, DescribeProducers; transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.server import Broker
from lockstep.protocol.messages.fetch import FetchResponse, PartitionData
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import ReadResult
from tests.broker.fetch.api.test_fetch import values
from tests.broker.produce.api.test_describe_producers import describe
from tests.broker.wire import Client, batch, fetch_request


class Written:
    """Transactions in partition 0 of topic "t", written past their coordinator."""

    def __init__(self, broker: Broker) -> None:
        partition = broker.assembly.cluster.partition("t", 0)
        assert partition is not None
        self.limits = partition.topic.config
        self.log: PartitionLog = partition.log
        self.appender: Appender = broker.assembly.appenders[partition.group.group_id]
        self.sequences: dict[int, int] = {}

    def data(self, producer_id: int, value: bytes = b"x", timestamp_ms: int = 1_000) -> int:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        made = batch(
            value,
            timestamp_ms=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        result = self.appender.append_transactional(self.log, made, self.limits, 9, "id", verified=True)
        assert isinstance(result, AppendResult)
        return result.base_offset

    async def end(self, producer_id: int, is_commit: bool) -> None:
        self.appender.end_transactions([self.log], TxnMarkerEntry(producer_id, 0, 4, is_commit, 1))
        await self.appender.group.committed()


async def written(broker: Broker, client: Client) -> Written:
    """0 plain, 1 of producer 7, 2 plain, 3 of producer 8, 4 aborts 7, 5 of 7 once more; 8 and 7 are open."""
    await client.create("t")
    log = Written(broker)
    await client.produce("t", batch(b"plain"))
    log.data(7, b"aborted")
    await client.produce("t", batch(b"plain too"))
    log.data(8, b"open")
    await log.end(7, is_commit=False)
    log.data(7, b"open, too")
    await log.appender.group.committed()
    return log


async def read(client: Client, offset: int, **options: Any) -> PartitionData:
    return await client.fetch("t", offset, isolation_level=1, **options)


def aborted(data: PartitionData) -> list[tuple[int, int]]:
    assert data.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]


async def ended(client: Client, timestamp: int, isolation_level: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[wanted])],
    )
    answer = (await client.call(request, 11)).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


async def test_committed_is_what_lies_below_the_first_open_transaction(
    broker: Broker, client: Client
) -> None:
    log = await written(broker, client)
    data = await read(client, 0)
    assert values(data) == [b"plain", b"aborted", b"plain too"]
    assert (data.high_watermark, data.last_stable_offset, aborted(data)) == (6, 3, [(7, 1)])
    for offset in (3, 4, 6):
        data = await read(client, offset)
        assert (data.error_code, values(data), aborted(data)) == (0, [], [])
    everything = await client.fetch("t", 0)
    assert everything.aborted_transactions is None and everything.last_stable_offset == 3
    assert len(values(everything)) == 6
    await log.end(8, is_commit=True)
    data = await read(client, 2)
    assert (values(data)[:2], data.last_stable_offset) == ([b"plain too", b"open"], 5)
    assert aborted(data) == [(7, 1)], "its marker is still to come"
    assert aborted(await read(client, 5)) == []
    await log.end(7, is_commit=False)
    assert aborted(await read(client, 0)) == [(7, 1), (7, 5)]
    assert aborted(await read(client, 0, partition_max_bytes=1)) == [], "only for the records that come"
    assert aborted(await read(client, 1, partition_max_bytes=1)) == [(7, 1)]


async def test_what_must_come_from_the_disk_ends_there_too(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await written(broker, client)
    group = log.appender.group
    monkeypatch.setattr(group, "read", lambda *_: ReadResult([], 0, cold=True))
    data = await read(client, 0)
    assert (values(data), aborted(data)) == ([b"plain", b"aborted", b"plain too"], [(7, 1)])
    data = await read(client, 3)
    assert (data.error_code, values(data)) == (0, [])


@pytest.mark.parametrize("min_bytes", [1, 70])
async def test_a_waiting_reader_is_woken_by_the_marker(
    broker: Broker, client: Client, min_bytes: int
) -> None:
    log = await written(broker, client)
    request = fetch_request({"t": {0: 3}}, isolation_level=1, max_wait_ms=10_000, min_bytes=min_bytes)
    waiting = asyncio.ensure_future(client.call(request, 12))
    await asyncio.sleep(0.05)
    log.data(9)
    await log.appender.group.committed()  # the high watermark moves, what is stable does not
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await log.end(8, is_commit=False)
    response: FetchResponse = await asyncio.wait_for(waiting, 5)
    data = response.responses[0].partitions[0]
    assert (data.last_stable_offset, aborted(data)) == (5, [(7, 1), (8, 3)])
    assert values(data)[0] == b"open"


async def test_a_session_reports_a_raised_last_stable_offset(broker: Broker, client: Client) -> None:
    log = await written(broker, client)
    first: FetchResponse = await client.call(
        fetch_request({"t": {0: 3}}, isolation_level=1, session_epoch=0), 12
    )
    assert first.session_id and values(first.responses[0].partitions[0]) == []
    await log.end(8, is_commit=True)
    again: FetchResponse = await client.call(
        fetch_request({}, isolation_level=1, session_id=first.session_id, session_epoch=1), 12
    )
    data = again.responses[0].partitions[0]
    assert (data.last_stable_offset, values(data)[0]) == (5, b"open")


async def test_offsets_for_readers_of_committed_records(broker: Broker, client: Client) -> None:
    log = await written(broker, client)
    log.data(7, timestamp_ms=5_000)
    await log.appender.group.committed()
    assert [(await ended(client, -1, level))[0] for level in (0, 1)] == [7, 3]
    assert await ended(client, 2_000, 1) == (-1, -1), "what is that new is not decided yet"
    newest = await ended(client, 2_000, 0)
    assert newest[0] == 4, "the marker, of now"
    assert [await ended(client, -3, level) for level in (0, 1)] == [newest, (-1, -1)]
    assert await ended(client, 1_000, 1) == (0, 1_000)


async def test_producers_and_their_open_transactions(broker: Broker, client: Client) -> None:
    await written(broker, client)
    ((_, found),) = await describe(client, ("t", [0]))
    assert [
        (each.producer_id, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
        for each in found.active_producers
    ] == [(7, 1, 4, 5), (8, 0, -1, 3)]
