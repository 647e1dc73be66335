"""Players follow the leaderships of their broker: what is played here, and from when until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lockstep.broker.server import Broker
from lockstep.player.driver.errors import Deposed
from lockstep.player.source.interface import Source, SourceClosed
from lockstep.player_host import local_players
from lockstep.player_host.local_players import LocalPlayers
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.cluster.brokers import POLL_INTERVAL_SECONDS
from tests.broker.conftest import StartCluster
from tests.broker.wire import Client, batch

LONG_S = 30.0


class Plays:
    """What is played, in place of a player: it reads, and remembers."""

    def __init__(self, name: str = "", told: list[str] | None = None) -> None:
        self.name = name
        self.told = [] if told is None else told
        """begins and ends, over all"""
        self.sources: list[Source] = []
        self.under_way: list[Source] = []
        self.read: dict[str, list[int]] = {}
        """log id -> positions"""
        self.player_terms: dict[str, int] = {}
        """log id -> newest"""
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.fail: Exception | None = None

    async def __call__(self, source: Source, player_term: int) -> None:
        assert player_term > self.player_terms.get(source.log_id, 0)
        self.player_terms[source.log_id] = player_term
        assert source.log_id not in [each.log_id for each in self.under_way]
        self.sources.append(source)
        self.under_way.append(source)
        self.told.append(f"{self.name}+{source.topic}-{source.partition}")
        try:
            if self.fail is not None:
                raise self.fail
            await self._play(source)
        finally:
            await self.let_go.wait()
            self.under_way.remove(source)
            self.told.append(f"{self.name}-{source.topic}-{source.partition}")

    async def _play(self, source: Source) -> None:
        first = (await source.bounds()).first_position
        found = self.read.setdefault(source.log_id, [])
        while True:
            chunk = await source.read(first, 1 << 20, LONG_S)
            found += [each.position for each in chunk.entries]
            first = chunk.through_position + 1

    @property
    def partitions(self) -> list[int]:
        return sorted(each.partition for each in self.under_way)


async def until(holds: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + LONG_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def test_topics_and_partitions_come_and_go(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_players, "POLL_INTERVAL_SECONDS", 0.02)
    plays, some = Plays(), Plays()
    players = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", plays)
    only_one = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", some, [1])
    players.start()
    only_one.start()
    await client.create("other")
    await client.create("t", partitions=2)
    await until(lambda: plays.partitions == [0, 1])
    await until(lambda: some.partitions == [1])
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=5_000
    )
    await client.call(grow, 2)
    await until(lambda: plays.partitions == [0, 1, 2])
    await client.produce("t", batch(b"a", b"b"), 2)
    before = [each.log_id for each in players.active_sources]
    assert len(set(before)) == 3
    await until(lambda: [each for each in plays.read.values() if each] == [[1]])
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    await until(lambda: plays.partitions == some.partitions == [])
    await client.create("t")
    await until(lambda: plays.partitions == [0])
    assert plays.sources[-1].log_id not in before, "it is another topic"
    assert some.partitions == []
    await players.stop()
    await only_one.stop()
    assert plays.partitions == []
    assert not broker.groups[1].on_leading or all(
        getattr(each, "__self__", None) not in (players, only_one) for each in broker.groups[1].on_leading
    )


@pytest.mark.parametrize("turns", range(5))
async def test_a_stop_that_meets_a_wake_is_one(broker: Broker, turns: int) -> None:
    players = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", Plays())
    players.start()
    await asyncio.sleep(0.01)
    players._check_due.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(players.stop(), 3)


async def test_what_fails_is_tried_again(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_players, "FIRST_PAUSE_SECONDS", 0.001)
    plays = Plays()
    await client.create("t")
    players = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", plays)
    for failure in (ValueError("a router"), SourceClosed("so it says"), Deposed(1 << 50)):
        plays.fail = failure
        began = len(plays.sources)
        players.start()
        await until(lambda began=began: len(plays.sources) >= began + 3)  # type: ignore[misc]
        plays.fail = None
        await until(lambda: plays.partitions == [0])
        await client.produce("t", batch(b"a"))
        await players.stop()
    assert plays.player_terms[plays.sources[0].log_id] > 1 << 50, "above whoever plays elsewhere"
    assert {"t-0: the delivery failed", "t-0: the delivery ended: so it says"} <= set(caplog.messages)
    assert [each for each in plays.told if each == "+t-0"] == ["+t-0"] * len(plays.sources)


async def test_a_stop_waits_for_all_to_let_go(broker: Broker, client: Client) -> None:
    plays = Plays()
    await client.create("t", partitions=2)
    players = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", plays)
    players.start()
    await until(lambda: plays.partitions == [0, 1])
    plays.let_go.clear()
    stopping = asyncio.ensure_future(players.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done() and plays.partitions == [0, 1]
    plays.let_go.set()
    await asyncio.wait_for(stopping, LONG_S)
    assert plays.partitions == []
    with pytest.raises(SourceClosed):
        await plays.sources[0].bounds()


async def test_the_leader_delivers(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t")
    plays = {node: Plays(str(node)) for node in cluster.brokers}
    players = {
        node: LocalPlayers(each.assembly.cluster, each.assembly.fetch_purgatory, "t", plays[node])
        for node, each in cluster.brokers.items()
    }
    for each in players.values():
        each.start()

    def played_by() -> list[int]:
        return [node for node, each in plays.items() if each.under_way]

    number = cluster.brokers[1].assembly.cluster.topics()[0].partitions[0].group.group_id
    begun: list[int] = []
    terms: list[int] = []
    for turn in range(4):
        await until(lambda: cluster.leader_of(number) is not None)
        leader = cluster.leader_of(number)
        assert leader is not None
        await until(lambda leader=leader: played_by() == [leader])  # type: ignore[misc]
        begun.append(leader)
        await (await cluster.client(leader)).produce("t", batch(b"%d" % turn))
        playing = plays[leader]
        log_id = playing.under_way[0].log_id
        terms.append(playing.player_terms[log_id])
        wanted = list(range(turn + 1))
        await until(lambda: playing.read[log_id][-turn - 1 :] == wanted)  # noqa: B023
        if turn == 1:
            await players[leader].stop()  # before its broker, as `lockstep serve` does
            await cluster.stop(leader)
            del players[leader], plays[leader]
        else:
            group = cluster.brokers[leader].groups[number]
            group.transfer_to_best()
            await until(lambda leader=leader: cluster.leader_of(number) not in (None, leader))  # type: ignore[misc]
    assert len(set(begun)) > 1
    assert terms == sorted(set(terms)), "each player's term is above all before"
    assert len({source.log_id for each in plays.values() for source in each.sources}) == 1
    for each in players.values():
        await each.stop()


async def test_it_ends_before_it_begins_again(broker: Broker, client: Client) -> None:
    plays = Plays()
    await client.create("t")
    players = LocalPlayers(broker.assembly.cluster, broker.assembly.fetch_purgatory, "t", plays)
    players.start()
    await until(lambda: plays.partitions == [0])
    plays.let_go.clear()
    group = broker.groups[1]
    playing = players.active_sources[0]
    group._serve(False)  # as when a leadership is lost
    await until(lambda: not group.is_leader)
    await asyncio.sleep(0.01)
    group._serve(True)
    await asyncio.sleep(0.01)
    assert plays.partitions == [0] and len(plays.sources) == 1, "the first has not let go"
    plays.let_go.set()
    await until(lambda: len(plays.sources) == 2 and plays.partitions == [0])
    assert players.active_sources[0] is not playing
    await players.stop()
