"""The source over the network, from real brokers in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from compat_tests.probe import free_port
from lockstep.broker.server import Broker
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ClientError, Unsupported
from lockstep.player.source.interface import LogBounds, RangeLost, SourceClosed
from lockstep.player_host import remote_source
from lockstep.player_host.remote_source import RemoteSource
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.maintenance.test_compaction import TINY, filler, keyed
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.reading import LONG_S, delete_records, everything, records, values, waits


async def source_of(broker: Broker, topic: str = "t", partition: int = 0) -> RemoteSource:
    return await RemoteSource.open(broker.bootstrap_servers, topic, partition, deleted_after_s=0.2)


async def delete_topic(client: Client) -> None:
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)


# --- what is read -----------------------------------------------------------------------------------------


async def test_whole_batches_in_order_as_they_were_appended(broker: Broker, client: Client) -> None:
    await client.create("t", partitions=2)
    sent = [[b"%d-%d" % (n, m) for m in range(1 + n % 3)] for n in range(20)]
    for each in sent:
        await client.produce("t", batch(*each))
    await client.produce("t", batch(b"of another partition"), 1)
    source, other = await source_of(broker), await source_of(broker, partition=1)
    assert (source.topic, source.partition, other.partition) == ("t", 0, 1)
    cluster_id = broker.assembly.cluster.cluster_id
    assert cluster_id and source.log_id.startswith(f"{cluster_id}/") and source.log_id.endswith("/0")
    assert source.log_id[:-1] == other.log_id[:-1] and source.log_id != other.log_id
    whole = await everything(source)
    assert values(whole) == [value for each in sent for value in each]
    assert [each.position for each in whole[:4]] == [0, 2, 5, 6]
    end = sum(map(len, sent))
    assert await source.bounds() == LogBounds(0, end)
    one_by_one = await everything(source, max_bytes=1)
    assert [(e.position, e.payload) for e in one_by_one] == [(e.position, e.payload) for e in whole]
    for first in range(end):
        assert [e.position for e in await everything(source, first)] == [
            e.position for e in whole if e.position >= first
        ]
    assert values(await everything(other)) == [b"of another partition"]
    await source.close()
    await other.close()


async def test_waits_for_what_is_new_and_holds_up_nobody_meanwhile(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = await source_of(broker)
    assert await source.read(0, 100, 0) == ([], -1)
    assert await source.read(0, 100, 0.01) == ([], -1)
    await client.produce("t", batch(b"0"))
    for position in range(1, 4):
        reading = asyncio.ensure_future(source.read(position, 100, LONG_S))
        await waits(broker, reading)
        async with asyncio.timeout(LONG_S / 2):
            assert values((await source.read(0, 100, 0)).entries)[:1] == [b"0"]
            assert await source.bounds() == LogBounds(0, position)
            assert not reading.done()
            await client.produce("t", batch(b"%d" % position))
            chunk = await reading
        assert (values(chunk.entries), chunk.through_position) == ([b"%d" % position], position)
    await source.close()


async def test_transactions(broker: Broker, client: Client, tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, 0)
    cluster.brokers[1] = broker
    await client.create("t")
    first, second = await Producer.of(cluster, "first"), await Producer.of(cluster, "second")
    await client.produce("t", batch(b"0"))
    await first.write("t", 0, b"1", b"2")
    await client.produce("t", batch(b"3"))
    source = await source_of(broker)
    assert values(await everything(source)) == [b"0"] and await source.bounds() == LogBounds(0, 1)
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
    async with asyncio.timeout(LONG_S):
        while await source.bounds() != LogBounds(0, 12):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    found = await everything(source)
    assert values(found) == [b"0", b"1", b"2", b"3", b"7", b"10"]
    for first_position in range(12):
        for max_bytes in (1, 200, 1 << 20):
            assert [each.position for each in await everything(source, first_position, max_bytes)] == [
                each.position for each in found if each.position >= first_position
            ]
    assert (await source.read(11, 1, 0)).through_position == 11, "a marker counts as read"
    for each in (first, second):
        await each.close()
    await source.close()


async def test_compaction_moves_no_position(start_broker: StartBroker) -> None:
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
    assert 0 < len(after) < len(before) and {each.position for each in after} <= before
    newest = {record.key: record.value for record in records(after)}
    assert newest == {b"k": b"49", **{b"%d" % n: b"v%d" % (45 + n) for n in range(5)}}
    for first in range(0, 100, 7):
        assert [e.position for e in await everything(source, first, 1)] == [
            e.position for e in after if e.position >= first
        ]
    await source.close()
    await client.close()


# --- what goes away ---------------------------------------------------------------------------------------


async def test_deleted_records(broker: Broker, client: Client) -> None:
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
    await source.close()


async def test_a_log_that_has_become_shorter(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cluster of ours does that; one of others may, where it prefers any leader to none."""
    monkeypatch.setattr(remote_source, "SHORTENED_AFTER_S", 0.1)
    await client.create("t")
    await client.produce("t", batch(b"a"))
    source = await source_of(broker)
    with pytest.raises(SourceClosed, match="the log ends before 1, and was read up to 6"):
        await source.read(7, 100, 0)
    await source.close()


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_the_topic_is_deleted(broker: Broker, client: Client, is_made_anew: bool) -> None:
    await client.create("t")
    source = await source_of(broker)
    reading = asyncio.ensure_future(source.read(0, 100, LONG_S))
    await waits(broker, reading)
    await delete_topic(client)
    if is_made_anew:
        await client.create("t")
        await client.produce("t", batch(b"of another"))
    words = "was deleted and created anew" if is_made_anew else "was deleted"
    with pytest.raises(SourceClosed, match=words):
        await asyncio.wait_for(reading, LONG_S)
    with pytest.raises(SourceClosed, match=words):
        await asyncio.wait_for(source.bounds(), LONG_S)
    with pytest.raises(SourceClosed, match=words):
        await asyncio.wait_for(source.read(0, 100, 0), LONG_S)
    if is_made_anew:
        again = await source_of(broker)
        assert again.log_id != source.log_id and values(await everything(again)) == [b"of another"]
        await again.close()
    await source.close()


async def test_is_closed(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = await source_of(broker)
    reading = asyncio.ensure_future(source.read(0, 100, LONG_S))
    await waits(broker, reading)
    async with asyncio.timeout(LONG_S):
        await source.close()
        with pytest.raises(ClientError):
            await reading
        with pytest.raises(ClientError):
            await source.bounds()


async def test_what_cannot_be_opened(broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create("t")
    with pytest.raises(BrokerError, match="no such topic"):
        await source_of(broker, "nobody-made-this")
    with pytest.raises(BrokerError, match="partition 7"):
        await source_of(broker, "t", 7)
    with pytest.raises(ClientError, match="connect"):
        await RemoteSource.open(f"localhost:{free_port()}", "t", 0)
    monkeypatch.setattr(BrokerConnection, "version_of", lambda *_: 12)
    with pytest.raises((Unsupported, ClientError)):
        await source_of(broker)


# --- brokers that come and go -----------------------------------------------------------------------------


async def test_the_broker_is_started_anew(start_broker: StartBroker, tmp_path: Path) -> None:
    listeners = f"PLAINTEXT://127.0.0.1:{free_port()}"
    broker = await start_broker(tmp_path / "data", listeners=listeners)
    client = await Client.connect(broker.port)
    await client.create("t")
    await client.produce("t", batch(b"a"))
    source = await source_of(broker)
    assert values(await everything(source)) == [b"a"]
    readings = [asyncio.ensure_future(source.read(1, 100, LONG_S))]
    await client.close()
    await broker.stop()
    readings += [asyncio.ensure_future(source.read(0, 100, 0))]
    bounds = asyncio.ensure_future(source.bounds())
    await asyncio.sleep(0.05)
    assert not bounds.done()
    broker = await start_broker(tmp_path / "data", listeners=listeners)
    client = await Client.connect(broker.port)
    async with asyncio.timeout(LONG_S):
        assert await bounds == LogBounds(0, 1)
        assert values((await readings[1]).entries) == [b"a"]
        await client.produce("t", batch(b"b"))
        assert values((await readings[0]).entries) == [b"b"]
    await source.close()
    await client.close()


async def test_the_leadership_moves(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t")
    bootstrap = ",".join(each.bootstrap_servers for each in cluster.brokers.values())

    def leader() -> int | None:
        known = cluster.brokers[max(cluster.brokers)].assembly.cluster.partition("t", 0)
        return None if known is None else cluster.leader_of(known.group.group_id)

    await cluster.until(lambda: leader() is not None, "a leader")
    source = await RemoteSource.open(bootstrap, "t", 0)
    for turn in range(4):
        was = leader()
        assert was is not None
        reading = asyncio.ensure_future(source.read(turn, 100, LONG_S))
        group = cluster.brokers[was].assembly.cluster.partition("t", 0).group  # type: ignore[union-attr]
        if turn == 3:
            await cluster.stop(was)
        else:
            group.transfer_to_best()
        await cluster.until(lambda was=was: leader() not in (None, was), "another leader")  # type: ignore[misc]
        now = leader()
        assert now is not None
        await (await cluster.client(now)).produce("t", batch(b"%d" % turn))
        async with asyncio.timeout(LONG_S):
            chunk = await reading
            while chunk.through_position < turn:
                chunk = await source.read(turn, 100, LONG_S)
            assert values(chunk.entries) == [b"%d" % turn]
            assert await source.bounds() == LogBounds(0, turn + 1)
    assert values(await everything(source)) == [b"0", b"1", b"2", b"3"]
    await source.close()
