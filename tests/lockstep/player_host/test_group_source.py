"""A log group in the order of its LSNs, over real brokers in this process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.player.core.messages import Entry
from lockstep.player.source.interface import MULTIPLE_PARTITIONS, LogBounds, LogChunk, RangeLost, SourceClosed
from lockstep.player_host.group_source import GroupSource
from lockstep.player_host.in_process_source import NotLeading
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import iter_records
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import FramesUnavailable
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.maintenance.test_compaction import TINY, filler, keyed
from tests.broker.transactions.producers import Producer
from tests.broker.wire import Client, batch
from tests.lockstep.player_host.reading import LONG_S, delete_records, everything, values, waits


def source_of(broker: Broker, topic: str = "t", group: int = 1, wanted: Any = None) -> GroupSource:
    found = broker.assembly.cluster.topic(topic)
    assert found is not None
    return GroupSource(
        broker.assembly.cluster, broker.assembly.fetch_purgatory, found, broker.groups[group], wanted
    )


def placed(entries: Collection[Entry]) -> list[tuple[int | None, bytes]]:
    """(partition, value) of each record."""
    found = []
    for entry in entries:
        assert isinstance(entry.payload, bytes)
        found += [(entry.partition, record.value or b"") for record in iter_records(entry.payload)]
    return found


def as_logged(group: LogGroup, topic_id: bytes) -> list[tuple[int, int, int, list[bytes]]]:
    """(last LSN, partition, base offset, values) of a topic's batches, by walking all frames of the log."""
    logs = {number: each.index for number, each in group.partitions.items() if each.topic_id == topic_id}
    found = []
    index = group.log.oldest_index
    while index <= group.applied_index:
        for frame in group.log.frames_cold(index, 1 << 20):
            lsn = frame.first_lsn
            for each, payload in zip(frame.directory, frame.payloads, strict=True):
                lsn += each.record_count
                if each.partition in logs and not each.flags & 4:
                    said = [record.value or b"" for record in iter_records(bytes(payload))]
                    found.append((lsn - 1, logs[each.partition], each.base_offset, said))
            index = frame.index + 1
    return found


async def cut_anywhere(source: GroupSource, whole: list[Entry]) -> None:
    """However little is asked for, and wherever reading begins, the cut is the same."""
    end = (await source.bounds()).next_position
    for max_bytes in (1, 300, 1 << 20):
        for first in range(1, end + 1, 1 + end // 40):
            again = await everything(source, first, max_bytes)
            wanted = [each for each in whole if each.position >= first]
            assert [(e.position, e.partition, e.payload) for e in again] == [
                (e.position, e.partition, e.payload) for e in wanted
            ]


# --- what is read -----------------------------------------------------------------------------------------


async def test_partitions_in_the_order_of_their_commit(broker: Broker, client: Client) -> None:
    topic_id = await client.create("t", partitions=3)
    await client.create("other", partitions=2)
    clients = [await Client.connect(broker.port) for _ in range(4)]
    rng = random.Random(1)

    async def produce(number: int) -> None:
        for turn in range(30):
            topic = "other" if rng.random() < 0.3 else "t"
            some = [b"%d-%d-%d" % (number, turn, each) for each in range(rng.randrange(1, 4))]
            answer = await clients[number].produce(topic, batch(*some), rng.randrange(2))
            assert answer.error_code == 0

    await asyncio.gather(*[produce(number) for number in range(4)])
    group = broker.groups[1]
    wanted = as_logged(group, topic_id)
    assert any(frame.record_count > 3 for frame in group.log.frames_cold(1, 1 << 20)), "several in a frame"
    source = source_of(broker)
    assert (source.topic, source.partition, source.log_group) == ("t", MULTIPLE_PARTITIONS, 1)
    assert source.log_id.endswith("/log-group-1")
    whole = await everything(source, 1)
    assert [(e.position, e.partition, values([e])) for e in whole] == [
        (lsn, partition, said) for lsn, partition, _, said in wanted
    ]
    assert {e.partition for e in whole} == {0, 1}
    assert await source.bounds() == LogBounds(1, group.log.next_lsn)
    await cut_anywhere(source, whole)
    one = await everything(source_of(broker, wanted=frozenset({1})), 1)
    assert [e.position for e in one] == [e.position for e in whole if e.partition == 1]
    for each in clients:
        await each.close()


async def test_from_the_disk(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_tail_cache_bytes="8192")
    client = await Client.connect(broker.port)
    topic_id = await client.create("t", partitions=2)
    for number in range(60):
        await client.produce("t", batch(b"%d" % number + b"x" * 30_000), number % 2)
    await filler(client)
    await client.produce("t", batch(b"last"), 1)
    group = broker.groups[1]
    assert len(group.log.segments()) > 3
    whole = await everything(source_of(broker), 1)
    assert [(e.position, e.partition, values([e])) for e in whole] == [
        (lsn, partition, said) for lsn, partition, _, said in as_logged(group, topic_id)
    ]
    source = source_of(broker)
    reads = 0
    position = whole[-2].position + 1
    while position <= whole[-1].position:
        position = (await source.read(position, 1, 0)).through_position + 1
        reads += 1
    assert reads < 10, "segments with others' records alone are passed over"
    await cut_anywhere(source, whole)
    await client.close()


async def test_what_cannot_be_read_now_is_nothing_yet(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    monkeypatch.setattr("lockstep.player_host.group_source.UNREADABLE_SECONDS", 0.0)
    source = source_of(broker)

    def broken(*_: Any) -> Any:
        raise FramesUnavailable("rot")

    with monkeypatch.context() as patched:
        patched.setattr(broker.groups[1].log, "frames_cold", broken)
        assert await source.read(1, 100, LONG_S) == LogChunk((), 0)
    assert values(await everything(source, 1)) == [b"a"]


# --- waiting ----------------------------------------------------------------------------------------------


async def test_waits_for_the_commit_of_any_partition(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t", partitions=2)
    await client.create("other")
    source = source_of(broker)
    await everything(source, 1)
    position = (await source.bounds()).next_position
    assert await source.read(position, 100, 0.01) == LogChunk([], position - 1)
    for place in range(6):
        reading = asyncio.ensure_future(source.read(position, 100, LONG_S))
        await waits(broker, reading)
        await client.produce("other", batch(b"not played"))
        assert not reading.done()
        await client.produce("t", batch(b"%d" % place), place % 2)
        chunk = await asyncio.wait_for(reading, LONG_S)
        assert placed(chunk.entries) == [(place % 2, b"%d" % place)]
        position = chunk.through_position + 1
    await client.produce("other", batch(b"not played", b"nor this"))
    assert await source.read(position, 100, 0.01) == LogChunk((), position - 1), "it is quiet for a while"
    await client.produce("t", batch(b"last"), 0)
    position += 3
    assert (await source.read(position - 3, 100, LONG_S)).through_position == position - 1
    monkeypatch.setattr("lockstep.player_host.group_source.OTHERS_SECONDS", 0.0)
    await client.produce("other", batch(b"not played", b"nor this"))
    chunk = await source.read(position, 100, 0.01)
    assert chunk == LogChunk([], position + 1), "in the end others' records count as read"
    given_up = asyncio.ensure_future(source.read(position + 2, 100, LONG_S))
    await waits(broker, given_up)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert broker.assembly.fetch_purgatory.count == 0


async def test_is_closed(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = source_of(broker)
    position = (await source.bounds()).next_position
    await everything(source, 1)
    await source.read(position, 1, 0.001)
    reading = asyncio.ensure_future(source.read(position, 100, LONG_S))
    await waits(broker, reading)
    await source.close()
    with pytest.raises(SourceClosed):
        await asyncio.wait_for(reading, LONG_S)
    with pytest.raises(SourceClosed):
        await source.bounds()


async def test_partitions_that_come_later(broker: Broker, client: Client) -> None:
    await client.create("t")
    source = source_of(broker)
    await client.produce("t", batch(b"a"))
    assert placed(await everything(source, 1)) == [(0, b"a")]
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=5_000
    )
    await client.call(grow, 2)
    await client.produce("t", batch(b"b"), 1)
    await client.produce("t", batch(b"c"), 0)
    assert placed(await everything(source, 1)) == [(0, b"a"), (1, b"b"), (0, b"c")]


# --- transactions -----------------------------------------------------------------------------------------


async def test_nothing_behind_what_is_undecided(broker: Broker, client: Client, tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, 0)
    cluster.brokers[1] = broker
    await client.create("t", partitions=3)
    await client.create("other")
    first, second = await Producer.of(cluster, "first"), await Producer.of(cluster, "second")
    not_played = await Producer.of(cluster, "not played")
    await not_played.write("other", 0, b"an open transaction elsewhere holds up nobody")
    source = source_of(broker)
    await client.produce("t", batch(b"0"), 0)
    await first.write("t", 1, b"1", b"2")
    await client.produce("t", batch(b"3"), 0)
    await second.write("t", 2, b"4")
    await first.write("t", 2, b"5")
    assert placed(await everything(source, 1)) == [(0, b"0")], "though 3 is stable in its own partition"
    begins = (await everything(source, 1))[-1].position + 1
    bounds = await source.bounds()
    assert bounds.first_position == 1 and begins <= bounds.next_position < broker.groups[1].log.next_lsn
    await source.read(begins, 100, 0.001)
    reading = asyncio.ensure_future(source.read(bounds.next_position, 1 << 20, LONG_S))
    await waits(broker, reading)
    assert not reading.done()
    await first.end(True)
    chunk = await asyncio.wait_for(reading, LONG_S)
    assert placed(chunk.entries) == [(1, b"1"), (1, b"2"), (0, b"3")], "4 is not decided"
    await second.end(False)
    await client.produce("t", batch(b"6"), 1)
    await first.write("t", 0, b"7")
    await first.end(False)
    await first.write("t", 0, b"8")
    await first.write("t", 1, b"9")
    await first.end(True)
    said = [(0, b"0"), (1, b"1"), (1, b"2"), (0, b"3"), (2, b"5"), (1, b"6"), (0, b"8"), (1, b"9")]

    async def all_is_decided() -> bool:
        return placed(await everything(source, 1)) == said

    await cluster.until(all_is_decided, "decided transactions")
    await cut_anywhere(source, await everything(source, 1))
    assert (await source.bounds()).next_position == broker.groups[1].log.next_lsn
    for each in (first, second, not_played):
        await each.close()


# --- what goes away ---------------------------------------------------------------------------------------


async def test_deleted_records(broker: Broker, client: Client) -> None:
    await client.create("t", partitions=2)
    for number in range(6):
        await client.produce("t", batch(b"%d" % number), number % 2)
    source = source_of(broker)
    whole = await everything(source, 1)
    await delete_records(client, 1, 2)  # 1 and 3
    first = whole[3].position + 1
    assert (await source.bounds()).first_position == first
    for position in (1, whole[0].position + 1, whole[3].position):
        with pytest.raises(RangeLost) as lost:
            await everything(source, position)
        assert lost.value.first_position == first
    before_the_loss = await source.read(1, 1 << 20, 0)
    assert placed(before_the_loss.entries) == [(0, b"0")], "what is there is given first"
    assert placed(await everything(source, first)) == [(0, b"4"), (1, b"5")]


async def test_freed_segments(start_broker: StartBroker) -> None:
    """A gap that had nothing of what is played is passed over; one that had is told."""
    broker = await start_broker(lockstep_tail_cache_bytes="8192")
    client = await Client.connect(broker.port)
    await client.create("t", partitions=2)
    await client.create("other")
    await client.produce("t", batch(b"old"), 0)
    for _ in range(40):
        await client.produce("other", batch(b"x" * 100_000))
    for number in range(20):
        await client.produce("t", batch(b"%d" % number + b"y" * 50_000), 1)
    await filler(client, 60)
    source, group = source_of(broker), broker.groups[1]
    whole = await everything(source, 1)
    other = broker.assembly.cluster.partition("other", 0)
    played = broker.assembly.cluster.partition("t", 1)
    assert other is not None and played is not None
    await group.advance_log_starts({other.log.local_id: other.log.high_watermark})
    assert group.free_deleted_segments() > 0
    assert group.log.segments()[0].first_index == 1, "with the old record, which lives"
    source = source_of(broker)
    assert (await source.bounds()).first_position == 1
    again = await everything(source, 1)
    assert [each.position for each in again] == [each.position for each in whole]
    await cut_anywhere(source, whole)
    await group.advance_log_starts({played.log.local_id: 20})
    freed = group.free_deleted_segments()
    source = source_of(broker)
    bounds = await source.bounds()
    assert freed > 0 and bounds.first_position > whole[-1].position
    assert [each.payload for each in (await source.read(1, 1 << 20, 0)).entries] == [whole[0].payload]
    with pytest.raises(RangeLost) as lost:
        await everything(source, whole[0].position + 1)
    assert lost.value.first_position == bounds.first_position
    await client.produce("t", batch(b"new"), 1)
    assert placed(await everything(source, bounds.first_position)) == [(1, b"new")]
    await client.close()


async def test_missing_records_are_passed_over_once_they_are_given_up(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what comes before them is deleted."""
    monkeypatch.setattr("lockstep.player_host.group_source.UNREADABLE_SECONDS", 0.0)
    broker = await start_broker(lockstep_tail_cache_bytes="8192")
    client = await Client.connect(broker.port)
    await client.create("t", partitions=2)
    for number in range(40):
        await client.produce("t", batch(b"%d" % number + b"x" * 100_000), number % 2)
    await filler(client, 60)
    group, cluster = broker.groups[1], broker.assembly.cluster
    other, played = cluster.partition("t", 0), cluster.partition("t", 1)
    assert other is not None and played is not None
    log, number = group.log, played.log.local_id
    await group.advance_log_starts({other.log.local_id: 20, number: 20})
    assert group.free_deleted_segments() > 0 and log.first_offset(number) is None
    played.log.log_start_offset = 5  # as if only these were deleted, and the others lost
    log.damage.note_missing([(number, 5, 20)], "lost")
    source = source_of(broker, wanted={1})
    assert (await source.bounds()).first_position == 1
    assert await source.read(1, 1 << 20, 0) == LogChunk((), 0)
    log.damage.skip_damage(number)
    source = source_of(broker, wanted={1})
    first = (await source.bounds()).first_position
    assert first > 1
    await client.produce("t", batch(b"new"), 1)
    assert placed(await everything(source, first)) == [(1, b"new")]
    await client.close()


async def test_compaction_moves_no_position(start_broker: StartBroker) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("t", partitions=2, cleanup_policy="compact")
    for turn in range(50):
        data = keyed([(b"%d" % (turn % 5), b"v%d" % turn), (b"k", b"%d" % turn)])
        await client.produce("t", data, turn % 2)
    source = source_of(broker)
    before = {each.position for each in await everything(source, 1)}
    await filler(client)
    assert await broker.compact() > 0
    source = source_of(broker)
    after = await everything(source, 1)
    assert 0 < len(after) < len(before)
    assert {each.position for each in after} <= before
    assert (await source.bounds()).first_position == 1
    await cut_anywhere(source, after)
    await client.close()


async def test_the_topic_is_deleted_and_made_again(broker: Broker, client: Client) -> None:
    await client.create("t")
    await client.produce("t", batch(b"of the first"))
    source = source_of(broker)
    position = (await source.bounds()).next_position
    await source.read(position, 100, 0.001)
    reading = asyncio.ensure_future(source.read(position, 100, LONG_S))
    await waits(broker, reading)
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    with pytest.raises(SourceClosed) as ended:
        await asyncio.wait_for(reading, LONG_S)
    assert not isinstance(ended.value, NotLeading)
    await client.create("t")
    await client.produce("t", batch(b"of another"))
    again = source_of(broker)
    assert again.log_id != source.log_id
    assert placed(await everything(again, 1)) == [(0, b"of another")]


# --- several nodes ----------------------------------------------------------------------------------------


async def until(cluster: BrokerCluster, holds: Callable[[], bool]) -> None:
    await cluster.until(holds, "another leader")


async def test_what_is_not_committed_does_not_count_as_read(start_cluster: StartCluster) -> None:
    """It may be lost with its leader, and its LSNs be others' records'."""
    cluster = await start_cluster(3, lockstep_data_groups="1", auto_leader_rebalance_enable="false")
    await cluster.settled()
    leader = cluster.leader_of(1)
    assert leader is not None
    broker, client = cluster.brokers[leader], await cluster.client(leader)
    await client.create("t")
    await client.create("other")
    await cluster.until(lambda: broker.assembly.cluster.topic("other") is not None, "the topic")
    await client.produce("t", batch(b"a"))
    source, group = source_of(broker), broker.groups[1]
    other = broker.assembly.cluster.partition("other", 0)
    assert other is not None
    for _ in range(10):
        await group.committed()
        position = group.log.next_lsn
        await everything(source, 1)
        data = bytearray(batch(b"not played"))
        group.append(other.log, data, read_header(data))
        async with asyncio.timeout(LONG_S):
            while group.log.next_lsn == position:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert group.applied_index < group.log.last_index
        for first in (position, position - 1):
            assert (await source.read(first, 1 << 20, 0)).through_position == position - 1


async def test_the_leadership_moves(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1", auto_leader_rebalance_enable="false")
    await cluster.settled()
    await (await cluster.client(1)).create("t", partitions=2)
    said: list[tuple[int, bytes]] = []
    ids = set()
    for turn in range(3):
        await until(cluster, lambda: cluster.leader_of(1) is not None)
        leader = cluster.leader_of(1)
        assert leader is not None
        other = next(node for node in cluster.brokers if node != leader)
        with pytest.raises(NotLeading):
            await source_of(cluster.brokers[other]).read(1, 100, LONG_S)
        source = source_of(cluster.brokers[leader])
        ids.add(source.log_id)
        client = await cluster.client(leader)
        for number in range(4):
            said.append((number % 2, b"%d-%d" % (turn, number)))
            await client.produce("t", batch(said[-1][1]), number % 2)
        assert placed(await everything(source, 1)) == said
        position = (await source.bounds()).next_position
        await source.read(position, 1, 0.001)
        reading = asyncio.ensure_future(source.read(position, 100, LONG_S))
        await asyncio.sleep(0)
        cluster.brokers[leader].groups[1].transfer_to_best()
        with pytest.raises(NotLeading):
            await asyncio.wait_for(reading, LONG_S)
        await until(cluster, lambda leader=leader: cluster.leader_of(1) not in (None, leader))  # type: ignore[misc]
    assert len(ids) == 1
