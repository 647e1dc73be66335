"""What a player reads of one partition, the same in the broker's process and over the network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.player.source.interface import LogBounds, RangeLost
from lockstep.player_host.in_process_source import InProcessSource
from lockstep.player_host.remote_source import RemoteSource
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker
from tests.broker.maintenance.test_compaction import TINY, filler, keyed
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.reading import LONG_S, delete_records, everything, records, values

Sources = Callable[..., Awaitable[Any]]


async def in_process(broker: Broker, partition: int = 0) -> InProcessSource:
    found = broker.assembly.cluster.partition("t", partition)
    assert found is not None
    return InProcessSource(broker.assembly.cluster, broker.assembly.fetch_purgatory, found)


async def remote(broker: Broker, partition: int = 0) -> RemoteSource:
    return await RemoteSource.open(broker.bootstrap_servers, "t", partition, deleted_after_s=0.2)


@pytest.fixture(params=[in_process, remote])
async def source_of(request: pytest.FixtureRequest) -> AsyncIterator[Sources]:
    """Opens a source of a partition of "t"; they are closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(broker: Broker, partition: int = 0) -> Any:
            source = await request.param(broker, partition)
            stack.push_async_callback(source.close)
            return source

        yield opened


async def test_whole_batches_in_order_as_they_were_appended(
    broker: Broker, client: Client, source_of: Sources
) -> None:
    topic_id = await client.create("t", partitions=2)
    sent = [[b"%d-%d" % (n, m) for m in range(1 + n % 3)] for n in range(20)]
    for each in sent:
        await client.produce("t", batch(*each))
    await client.produce("t", batch(b"of another partition"), 1)
    source, other = await source_of(broker), await source_of(broker, 1)
    assert (source.topic, source.partition, other.partition) == ("t", 0, 1)
    cluster_id = broker.assembly.cluster.cluster_id
    assert cluster_id and source.log_id.startswith(f"{cluster_id}/") and source.log_id.endswith("/0")
    assert source.log_id[:-1] == other.log_id[:-1] and source.log_id != other.log_id
    assert topic_id.hex() not in source.log_id
    whole = await everything(source)
    assert values(whole) == [value for each in sent for value in each]
    assert [each.position for each in whole[:4]] == [0, 2, 5, 6]
    end = sum(map(len, sent))
    assert await source.bounds() == LogBounds(0, end)
    # However little is asked for, and wherever reading begins, the cut is the same.
    one_by_one = await everything(source, max_bytes=1)
    assert [(e.position, e.payload) for e in one_by_one] == [(e.position, e.payload) for e in whole]
    for first in range(end):
        assert [e.position for e in await everything(source, first)] == [
            e.position for e in whole if e.position >= first
        ]
    assert values(await everything(other)) == [b"of another partition"]


async def test_transactions(broker: Broker, client: Client, source_of: Sources, tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, 0)
    cluster.brokers[1] = broker
    await client.create("t")
    first, second = await Producer.of(cluster, "first"), await Producer.of(cluster, "second")
    await client.produce("t", batch(b"0"))
    await first.write("t", 0, b"1", b"2")
    await client.produce("t", batch(b"3"))
    source = await source_of(broker)

    def stable_offset() -> int:
        found = broker.assembly.cluster.partition("t", 0)
        return -1 if found is None else found.last_stable_offset

    assert values(await everything(source)) == [b"0"]
    assert await source.bounds() == LogBounds(0, 1)
    reading = asyncio.ensure_future(source.read(1, 1 << 20, LONG_S))
    await second.write("t", 0, b"4")
    assert not reading.done(), "nothing at or above the last stable offset"
    await first.end(True)
    chunk = await asyncio.wait_for(reading, LONG_S)
    assert (values(chunk.entries), chunk.through_position) == ([b"1", b"2", b"3"], 3)
    await second.end(False)
    await client.produce("t", batch(b"7"))
    await first.write("t", 0, b"8")
    await first.end(False)
    await first.write("t", 0, b"10")
    await first.end(True)
    await cluster.until(lambda: stable_offset() == 12, "last marker")
    found = await everything(source)
    assert values(found) == [b"0", b"1", b"2", b"3", b"7", b"10"]
    assert [each.position for each in found] == [0, 2, 3, 7, 10]
    for first_position in range(12):
        for max_bytes in (1, 200, 1 << 20):
            assert [each.position for each in await everything(source, first_position, max_bytes)] == [
                each.position for each in found if each.position >= first_position
            ]
    assert (await source.bounds()).next_position == 12
    through = (await source.read(11, 1, 0)).through_position
    assert through == 11, "a marker counts as read"
    for each in (first, second):
        await each.close()


async def test_deleted_records(broker: Broker, client: Client, source_of: Sources) -> None:
    await client.create("t")
    for value in (b"a", b"b", b"c"):
        await client.produce("t", batch(value))
    source = await source_of(broker)
    await delete_records(client, 0, 2)
    for wait_s in (0.0, LONG_S):
        with pytest.raises(RangeLost) as lost:
            await source.read(1, 100, wait_s)
        assert lost.value.first_position == 2
    assert values(await everything(source, 2)) == [b"c"]
    assert await source.bounds() == LogBounds(2, 3)


async def test_compaction_moves_no_position(start_broker: StartBroker, source_of: Sources) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("t", cleanup_policy="compact")
    for turn in range(50):
        await client.produce("t", keyed([(b"%d" % (turn % 5), b"v%d" % turn), (b"k", b"%d" % turn)]))
    source = await source_of(broker)
    before = {each.position for each in await everything(source)}
    await filler(client)
    assert await broker.compact() > 0
    after = await everything(source)
    assert 0 < len(after) < len(before)
    assert {each.position for each in after} <= before
    newest = {record.key: record.value for record in records(after)}
    assert newest == {b"k": b"49", **{b"%d" % n: b"v%d" % (45 + n) for n in range(5)}}
    assert await source.bounds() == LogBounds(0, 100)
    for first in range(0, 100, 7):
        assert [e.position for e in await everything(source, first, 1)] == [
            e.position for e in after if e.position >= first
        ]
    await client.close()
