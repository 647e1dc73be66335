"""The source inside a broker, over real brokers in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.player.source.interface import LogBounds, LogChunk, RangeLost, SourceClosed
from lockstep.player_host.in_process_source import InProcessSource, NotLeading
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import StorageError
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.reading import LONG_S, delete_records, everything, values, waits


def source_of(broker: Broker, topic: str = "t", partition: int = 0) -> InProcessSource:
    found = broker.assembly.cluster.partition(topic, partition)
    assert found is not None
    return InProcessSource(broker.assembly.cluster, broker.assembly.fetch_purgatory, found)


# --- what is read -----------------------------------------------------------------------------------------


async def test_from_the_disk(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_tail_cache_bytes="8192")
    client = await Client.connect(broker.port)
    await client.create("t")
    sent = [b"%d" % n + b"x" * 20_000 for n in range(100)]
    for each in sent:
        await client.produce("t", batch(each))
    source = source_of(broker)
    assert values(await everything(source, max_bytes=50_000)) == sent
    group = broker.groups[1]
    cold = group.read

    def never_in_memory(*arguments: Any) -> Any:
        result = cold(*arguments)
        result.cold, result.buffers = True, []
        return result

    group.read = never_in_memory  # type: ignore[method-assign, assignment]
    assert values(await everything(source, max_bytes=50_000)) == sent
    await client.close()


async def test_what_cannot_be_read_now_is_nothing_yet(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    monkeypatch.setattr("lockstep.player_host.in_process_source.UNREADABLE_SECONDS", 0.0)
    source = source_of(broker)
    group = broker.groups[1]

    def broken(*_: Any) -> Any:
        raise StorageError("rot")

    with monkeypatch.context() as patched:
        patched.setattr(group, "read", broken)
        assert await source.read(0, 100, LONG_S) == LogChunk((), -1)
    assert values((await source.read(0, 100, LONG_S)).entries) == [b"a"]


# --- waiting ----------------------------------------------------------------------------------------------


async def test_waits_for_the_commit_and_no_longer(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = source_of(broker)
    assert await source.read(0, 100, 0) == LogChunk((), -1)
    assert await source.read(0, 100, 0.01) == LogChunk((), -1)
    for place in range(3):
        readings = [asyncio.ensure_future(source.read(place, 100, LONG_S)) for _ in range(3)]
        await waits(broker, readings[0])
        await client.produce("t", batch(b"%d" % place))
        for reading in readings:
            chunk = await asyncio.wait_for(reading, LONG_S)
            assert (values(chunk.entries), chunk.through_position) == ([b"%d" % place], place)
    given_up = asyncio.ensure_future(source.read(3, 100, LONG_S))
    await waits(broker, given_up)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert broker.assembly.fetch_purgatory.count == 0


async def test_what_is_committed_is_handed_over_at_once(broker: Broker, client: Client) -> None:
    """In so many turns of the loop; with `-s` it says in how much time. Nothing waits for a clock."""
    await client.create("t")
    found = broker.assembly.cluster.partition("t", 0)
    assert found is not None
    source, loop = source_of(broker), asyncio.get_running_loop()
    committed_at, turn, counting = 0.0, 0, False
    seconds: list[float] = []
    turns: list[int] = []

    def committed() -> None:
        nonlocal committed_at, turn, counting
        committed_at, turn, counting = loop.time(), -1, True
        next_turn()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if counting:
            loop.call_soon(next_turn)

    async def take(position: int) -> LogChunk:
        nonlocal counting
        chunk = await source.read(position, 1 << 20, LONG_S)
        seconds.append(loop.time() - committed_at)
        turns.append(turn)
        counting = False
        return chunk

    found.log.on_advance.insert(0, committed)  # before the waiters are woken
    for position in range(200):
        reading = asyncio.ensure_future(take(position))
        await waits(broker, reading)
        await client.produce("t", batch(b"x" * 1000))
        assert (await asyncio.wait_for(reading, LONG_S)).through_position == position
    assert max(turns) <= 2
    seconds.sort()
    print(f"from commit to entry: median {seconds[100] * 1e6:.0f} us, p99 {seconds[198] * 1e6:.0f} us")


async def test_is_closed(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = source_of(broker)
    reading = asyncio.ensure_future(source.read(0, 100, LONG_S))
    await waits(broker, reading)
    await source.close()
    with pytest.raises(SourceClosed):
        await asyncio.wait_for(reading, LONG_S)
    with pytest.raises(SourceClosed):
        await source.bounds()


# --- what goes away ---------------------------------------------------------------------------------------


async def test_deleted_during_a_disk_read(broker: Broker, client: Client) -> None:
    await client.create("t")
    for value in (b"a", b"b", b"c"):
        await client.produce("t", batch(value))
    source, group = source_of(broker), broker.groups[1]
    memory, disk = group.read, group.read_cold
    asked, go_on = asyncio.Event(), asyncio.Event()

    def not_in_memory(*arguments: Any) -> Any:
        result = memory(*arguments)
        result.cold = True
        return result

    async def slow(*arguments: Any) -> Any:
        result = await disk(*arguments)
        asked.set()
        await go_on.wait()
        return result

    group.read, group.read_cold = not_in_memory, slow  # type: ignore[method-assign, assignment]
    reading = asyncio.ensure_future(source.read(0, 1 << 20, LONG_S))
    await asyncio.wait_for(asked.wait(), LONG_S)
    await delete_records(client, 0, 2)
    go_on.set()
    with pytest.raises(RangeLost):
        await asyncio.wait_for(reading, LONG_S)


async def test_the_topic_is_deleted_and_made_again(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = source_of(broker)
    reading = asyncio.ensure_future(source.read(0, 100, LONG_S))
    await waits(broker, reading)
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    with pytest.raises(SourceClosed) as ended:
        await asyncio.wait_for(reading, LONG_S)
    assert not isinstance(ended.value, NotLeading)
    await client.create("t")
    await client.produce("t", batch(b"of another"))
    for ask in (lambda: source.read(0, 100, 0), source.bounds):
        with pytest.raises(SourceClosed):
            await ask()
    again = source_of(broker)
    assert again.log_id != source.log_id
    assert values(await everything(again)) == [b"of another"]


# --- several nodes ----------------------------------------------------------------------------------------


async def test_the_leadership_moves(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t")

    def leader() -> int | None:
        known = cluster.brokers[max(cluster.brokers)].assembly.cluster.partition("t", 0)
        return None if known is None else cluster.leader_of(known.group.group_id)

    await cluster.until(lambda: leader() is not None, "a leader")
    was = leader()
    assert was is not None
    await (await cluster.client(was)).produce("t", batch(b"a"))
    other = next(node for node in cluster.brokers if node != was)
    with pytest.raises(NotLeading):
        await source_of(cluster.brokers[other]).read(0, 100, LONG_S)
    source = source_of(cluster.brokers[was])
    assert values((await source.read(0, 100, LONG_S)).entries) == [b"a"]
    reading = asyncio.ensure_future(source.read(1, 100, LONG_S))
    await asyncio.sleep(0)
    group = cluster.brokers[was].assembly.cluster.partition("t", 0).group  # type: ignore[union-attr]
    group.transfer_to_best()
    with pytest.raises(NotLeading):
        await asyncio.wait_for(reading, LONG_S)
    await cluster.until(lambda: leader() not in (None, was), "another leader")
    now = leader()
    assert now is not None
    await (await cluster.client(now)).produce("t", batch(b"b"))
    taken_over = source_of(cluster.brokers[now])
    assert taken_over.log_id == source.log_id
    assert values(await everything(taken_over)) == [b"a", b"b"]
    assert await taken_over.bounds() == LogBounds(0, 2)
    with pytest.raises(NotLeading):
        await source.bounds()


async def test_without_a_lease_no_bounds(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    source = source_of(broker)
    with monkeypatch.context() as patched:
        patched.setattr(LogGroup, "has_lease", False)
        asked = asyncio.ensure_future(source.bounds())
        await client.produce("t", batch(b"a"))
        assert not asked.done()
    assert await asyncio.wait_for(asked, LONG_S) == LogBounds(0, 1)
