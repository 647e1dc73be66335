"""Targets of several logs, changed while they are played; over doubles in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from lockstep.player.core.messages import Entry, Part
from lockstep.player.driver.errors import PlayerStopped
from lockstep.player.source.interface import LogBounds
from lockstep.player.target.target_position import Mark
from lockstep.player_host.config import PlayerConfig, TargetConfig, ToAll, parse
from lockstep.player_host.players import Players, first_position
from lockstep.player_host.routers import router_of
from tests.player.driver.doubles import MemoryLog, MemoryStreams, has_all, route, settings, until
from tests.support.cases import each_case


def players_of(streams: MemoryStreams, *names: str) -> Players:
    """With these targets."""
    targets = {name: TargetConfig(name) for name in names}
    config = PlayerConfig("one", "topic", ToAll(names), targets, settings=settings())
    return Players(config, route, streams)


@asynccontextmanager
async def played(players: Players, log: MemoryLog, player_term: int = 1) -> AsyncIterator[None]:
    task = asyncio.create_task(players.deliver(log, player_term))
    try:
        await until(lambda: log.log_id in players.drivers)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_where_a_target_begins() -> None:
    bounds = LogBounds(3, 9)
    assert [first_position(each, bounds) for each in ("earliest", "latest", 5)] == [3, 9, 5]


async def test_targets_come_and_go_while_a_log_is_played() -> None:
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    log.append("a b", "a")
    players = players_of(streams, "a")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a"))
        assert not streams["b"].applied
        await players.add("b", TargetConfig("b"))
        await until(lambda: has_all(log, streams, "b"))
        players.remove("a")
        log.append("a b")
        await until(lambda: has_all(log, streams, "b"))
        assert len(streams["a"].applied) == 2
        assert list(players.status()["targets"]) == ["b"]
    log.append("b")
    async with played(players, log, player_term=2):
        await until(lambda: has_all(log, streams, "b"))
        assert len(streams["a"].applied) == 2, "what was changed holds for the next playing, too"


async def test_with_the_route_all_a_new_target_gets_all() -> None:
    """What it had missed, and what comes: not only dummies, which would move its mark over both."""
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    config = parse(
        'player = "one"\ntopic = "topic"\nroute = {by = "all"}\ntargets = {a = {address = "localhost:1"}}\n'
    )
    targets = {"a": TargetConfig("a")}
    everything = router_of(config.route, targets)

    def routed(entry: Entry) -> list[tuple[str, Part]]:
        names = " ".join(name for name, _ in everything(Entry(entry.position, b"bytes")))
        return route(Entry(entry.position, names))

    players = Players(replace(config, settings=settings(dummy_every=1)), routed, streams, targets)
    log.append("a b", "a b")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a"))
        await players.add("b", TargetConfig("b"))
        await until(lambda: has_all(log, streams))
        log.append("a b")
        await until(lambda: has_all(log, streams))
        players.remove("a")
        log.append("b")
        await until(lambda: has_all(log, streams))
        assert players.status()["playing"][0]["unrouted"] == 0


async def test_a_target_that_begins_later() -> None:
    log, streams = MemoryLog(), MemoryStreams("a", "b", "c")
    log.append("a b c", "a b c")
    players = players_of(streams, "a")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a"))
        await players.add("b", TargetConfig("b", "latest"))
        await players.add("c", TargetConfig("c", 1))
        log.append("b c")
        await until(lambda: streams["b"].applied == [2] and streams["c"].applied == [1, 2])


async def test_a_target_that_is_reached_first_after_records_were_deleted() -> None:
    """It begins there: with a mark at what was the first position it would be stopped, for good."""
    log, streams = MemoryLog(), MemoryStreams("a", "b", "c")
    log.append(*["a b c"] * 3)
    players = players_of(streams, "a", "b")
    streams["b"].is_up = streams["c"].is_up = False
    async with played(players, log):
        await players.add("c", TargetConfig("c", 0))
        await until(lambda: has_all(log, streams, "a"))
        log.trim(2)
        streams["b"].restart()
        await until(lambda: streams["b"].applied == [2])
        log.append("a b")
        await until(lambda: streams["b"].applied == [2, 3])
        log.trim(3)
        streams["c"].restart()
        words = "it has no mark, and is to begin at 0, the log begins at 3"
        await until(lambda: players.status()["playing"][0]["targets"][2]["stopped_because"] == words)
        streams["b"].crash()
        log.append("a b")
        log.trim(5)
        streams["b"].restart()
        words = "it needs 4, the log begins at 5"
        await until(lambda: players.status()["playing"][0]["targets"][1]["stopped_because"] == words)


@each_case("at_once", [False, True], ids=["later", "from within"])
@each_case(
    ("first", "words"),
    [(0, "to begin at 0, the log begins at 3"), (9, "to begin at 9, the log ends before 4")],
)
async def test_a_first_position_that_the_log_has_not_leaves_no_mark(
    first: int, words: str, at_once: bool
) -> None:
    """With one it would begin there for good, whatever is corrected."""
    log, streams = MemoryLog(), MemoryStreams("a", "b", at_once=at_once)
    log.append(*["a b"] * 4)
    log.trim(3)
    players = players_of(streams, "b")
    async with played(players, log):
        await players.add("a", TargetConfig("a", first))
        said = f"it has no mark, and is {words}"
        await until(lambda: players.status()["playing"][0]["targets"][1]["stopped_because"] == said)
        assert streams["a"].mark is None
        players.remove("a")
        await players.add("a", TargetConfig("a"))
        await until(lambda: streams["a"].applied == [3])


@each_case("first", [0, 9])
async def test_a_first_position_does_not_count_where_there_is_a_mark(first: int) -> None:
    """It may be deleted by now, and so it may be where the log has not come to again."""
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    log.append(*["a b"] * 4)
    log.trim(3)
    streams["a"].mark = Mark(log.log_id, 1, 1, 2)
    streams["a"].restart()
    players = players_of(streams, "b")
    async with played(players, log, player_term=2):
        await players.add("a", TargetConfig("a", first))
        await until(lambda: streams["a"].applied == [3])


async def test_a_stream_that_waits_for_the_first_position_is_given_up() -> None:
    """Nothing is opened by one whose time is over, or whose target is gone."""
    log, streams = HeldLog(), MemoryStreams("a")
    players = players_of(streams)
    async with played(players, log):
        await players.add("a", TargetConfig("a"))
        log.may_tell.clear()
        counters = next(iter(players.drivers.values())).target_counters("a")
        await until(lambda: counters.streams > 0)
        assert not streams.opened
        players.pause("a")
        log.may_tell.set()
        await asyncio.sleep(0.02)
        assert not streams.opened
        log.append("a")
        players.resume("a")
        await until(lambda: has_all(log, streams))


async def test_a_pause_holds_for_the_next_playing() -> None:
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    players = players_of(streams, "a", "b")
    async with played(players, log):
        log.append("a b")
        await until(lambda: has_all(log, streams))
        players.pause("b")
        log.append("a b")
        await until(lambda: has_all(log, streams, "a"))
        assert players.status()["targets"]["b"]["paused"]
        assert players.status()["playing"][0]["targets"][1]["stopped_because"] == "paused"
    async with played(players, log, player_term=2):
        log.append("a b")
        await until(lambda: has_all(log, streams, "a"))
        assert streams["b"].applied == [0]
        players.resume("b")
        await until(lambda: has_all(log, streams))
        assert not players.status()["targets"]["b"]["paused"]


async def test_a_target_is_added_paused_where_nothing_is_played() -> None:
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    players = players_of(streams, "a")
    await players.add("b", TargetConfig("b"))
    players.pause("b")
    log.append("a b")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a"))
        assert not streams["b"].applied


class HeldLog(MemoryLog):
    """Whose bounds are told when they may be: the brokers are away."""

    def __init__(self) -> None:
        super().__init__()
        self.may_tell = asyncio.Event()
        self.may_tell.set()

    async def bounds(self) -> LogBounds:
        await self.may_tell.wait()
        return await super().bounds()


async def test_a_change_that_was_not_waited_for_is_none() -> None:
    log, streams = HeldLog(), MemoryStreams("a", "b")
    players = players_of(streams, "a")
    log.append("a b")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a"))
        log.may_tell.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await players.add("b", TargetConfig("b"))
        assert list(players.status()["targets"]) == ["a"]
        log.may_tell.set()
        await players.add("b", TargetConfig("b"))
        await until(lambda: has_all(log, streams))


async def test_two_changes_at_once() -> None:
    """Of two targets with one name, or one address, one is refused, and the other everywhere."""
    log, streams = HeldLog(), MemoryStreams("a", "b", "c")
    players = players_of(streams, "a")
    async with played(players, log):
        log.may_tell.clear()
        first = asyncio.create_task(players.add("b", TargetConfig("b")))
        others = [asyncio.create_task(players.add(name, TargetConfig(at))) for name, at in ("bc", "cb")]
        await asyncio.sleep(0)
        log.may_tell.set()
        await first
        for other, words in zip(others, ("there is a target 'b'", "at b is target 'b'"), strict=True):
            with pytest.raises(ValueError, match=words):
                await other
        log.append("a b")
        await until(lambda: has_all(log, streams, "a", "b"))


async def test_a_log_that_has_ended_is_in_nobodys_way() -> None:
    log, streams = MemoryLog(), MemoryStreams("a", "b")
    players = players_of(streams, "a")
    async with played(players, log):
        await until(lambda: has_all(log, streams, "a") and players.drivers[log.log_id].core.started)
        log.has_ended = True  # and the playing has not read it yet
        await players.add("b", TargetConfig("b"))
        assert list(players.status()["targets"]) == ["a", "b"]
        log.has_ended = False


async def test_absent_targets() -> None:
    players = players_of(MemoryStreams("a"), "a")
    for change in (players.remove, players.pause, players.resume):
        with pytest.raises(KeyError):
            change("nobody")
    with pytest.raises(ValueError, match="there is a target 'a'"):
        await players.add("a", TargetConfig("a"))
    assert players.status() == {
        "player": "one",
        "topic": "topic",
        "targets": {"a": {"address": "a", "first": "earliest", "paused": False}},
        "playing": [],
    }


async def test_a_log_of_which_nothing_can_be_known() -> None:
    """It concerns this log alone, as it does later on."""

    class Log(MemoryLog):
        async def bounds(self) -> LogBounds:
            raise LookupError("not allowed")

    with pytest.raises(PlayerStopped, match="LookupError: not allowed"):
        await players_of(MemoryStreams("a"), "a").deliver(Log(), 1)


async def test_the_reason_of_an_ended_delivery_is_reported() -> None:
    log, streams = MemoryLog(), MemoryStreams("a")
    players = players_of(streams, "a")
    task = asyncio.create_task(players.deliver(log, 1))
    await until(lambda: bool(players.drivers))
    log.end()
    with pytest.raises(PlayerStopped, match="deleted"):
        await asyncio.wait_for(task, 20)
    assert not players.drivers
