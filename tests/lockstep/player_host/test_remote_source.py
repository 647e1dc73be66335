"""The source over the network, from real brokers in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from compat_tests.probe import free_port
from lockstep.broker.server import Broker
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ClientError, Unsupported
from lockstep.player.source.interface import LogBounds, SourceClosed
from lockstep.player_host import remote_source
from lockstep.player_host.remote_source import RemoteSource
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.reading import LONG_S, everything, values, waits


async def source_of(broker: Broker, topic: str = "t", partition: int = 0) -> RemoteSource:
    return await RemoteSource.open(broker.bootstrap_servers, topic, partition, deleted_after_s=0.2)


async def delete_topic(client: Client) -> None:
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)


# --- what is read -----------------------------------------------------------------------------------------


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


# --- what goes away ---------------------------------------------------------------------------------------


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
    words = "was deleted and re-created" if is_made_anew else "was deleted"
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


async def test_the_broker_is_started_again(start_broker: StartBroker, tmp_path: Path) -> None:
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
