"""The player's measurements, run: Kafka's way against a broker, LogPlayer's own, targets that note."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.player.backlogs import DUMMY_WINDOW, Backlogs
from bench.player.children import HOSTING, Child
from bench.player.delays import Blocks
from bench.player.points import CLOSED, GRPC, OPEN, PLAIN, RAW, REMOTE, SMOKE, STORED, TRANSACTIONS, Point
from bench.player.stalled import (
    MISSED_MEMORY,
    OTHERS_CALM,
    OTHERS_STALLED,
    TARGETS,
    Stalled,
    stopped,
)
from bench.player.watched import LeanSessions, Watched
from bench.player.workload import split, transaction
from bench.sessions.failures import RoundFailed
from bench.sessions.jobs import Block
from compat_tests.targets import ROOT, LockstepTarget
from lockstep.client import Client
from player.core.messages import Batch, Hello, Part, dummy
from player.transport.seam import Greeting
from protocol.records.record import BatchBuilder


class OneBroker:
    """Of a `Session` what blocks need: a broker that speaks Kafka's protocol, topics, no device."""

    def __init__(self, target: LockstepTarget, directory: Path) -> None:
        self.target = target
        self.directory = directory
        self.blocks: list[Block] = []
        self._topics = 0

    def leader_directory(self, topic: str) -> Path:
        return self.directory / "node"

    def topic(self, policy: str, partitions: int = 1) -> str:
        self._topics += 1
        name = f"{policy}-{self._topics}"

        async def make() -> None:
            async with Client(self.target.bootstrap) as client:
                await client.create_topic(name, partitions=partitions)

        asyncio.run(make())
        return name

    def observe(self, name: str, policy: str, work: Callable[[], Block], *, max_outstanding: int) -> Block:
        self.blocks.append({"name": name, "figures": work(), "outstanding": max_outstanding})
        return self.blocks[-1]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    words: Any = {"directory": tmp_path / "node", "environment": {"PYTHONPATH": str(ROOT)}}
    with LockstepTarget({"log.flush": "os"}, command=HOSTING, **words) as target:
        yield OneBroker(target, tmp_path)


@pytest.mark.parametrize(("system", "loop"), [(PLAIN, CLOSED), (PLAIN, OPEN), (TRANSACTIONS, CLOSED)])
def test_consumers_get_their_shards_parts(session: Any, system: str, loop: str) -> None:
    blocks, point = Blocks(session, SMOKE), Point(3, 2)
    for _ in range(2):  # the topics are used again: from their ends on
        blocks.kafka(system, loop, point)
    for block in session.blocks:
        figures = block["figures"]
        assert figures["writes"] > 0 and figures["samples"] >= 2
        assert figures["append_p50_ms"] > 0 and 0 < figures["apply_p50_ms"] <= figures["apply_max_ms"]
        assert "player_p50_ms" not in figures


def test_two_level_kafka_plays_the_log_in_transactions(session: Any) -> None:
    Blocks(session, replace(SMOKE, two_level_transactions=12)).two_level(2)
    (block,) = session.blocks
    figures = block["figures"]
    assert block["name"] == "two_level_closed_t2_k3"
    assert (figures["writes"], figures["samples"]) == (12, 24)
    assert 0 < figures["player_mean_ms"] < figures["apply_mean_ms"]


def test_a_child_that_fails_says_why(session: Any) -> None:
    job = {"bootstrap": session.target.bootstrap, "log": "nowhere", "topics": ["nowhere"]}
    with Child("kafka_player", job) as child, pytest.raises(RoundFailed, match="the kafka_player: "):
        child.heard()
    with Child("writer", {"way": "log"}) as child:
        with pytest.raises(RoundFailed, match="KeyError"):
            child.heard()
        with pytest.raises(RoundFailed, match="the writer ended"):
            child.heard()


# --- LogPlayer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "loop"), [(GRPC, OPEN), (RAW, CLOSED), (REMOTE, OPEN), (STORED, CLOSED)])
def test_the_players_targets_get_their_parts(session: Any, system: str, loop: str) -> None:
    block = Blocks(session, SMOKE).log_player(system, loop, Point(3, 2))
    figures = block["figures"]
    assert figures["writes"] > 0 and figures["samples"] >= 2
    assert 0 < figures["player_mean_ms"] < figures["apply_mean_ms"]
    assert figures["player_cpu_us"] > 0


def test_a_log_that_is_there_is_played_and_a_target_recovers(session: Any) -> None:
    backlogs = Backlogs(session, SMOKE)
    backlogs.throughput("grpc")
    backlogs.recovery(20)
    found = {block["name"]: block["figures"] for block in session.blocks}
    assert found["throughput"]["records"] == SMOKE.throughput_records
    assert found["throughput"]["records_per_s"] > 0
    assert found["recovery20"]["recovery_s"] > 0 and found["recovery20"]["reconnect_s"] > 0


def test_a_target_that_stands_still_loses_nothing_and_the_others_go_on(session: Any) -> None:
    stalled = Stalled(session, SMOKE)
    stalled.others()
    stalled.missed()
    found = {block["name"]: block["figures"] for block in session.blocks}
    assert list(found) == [OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY]
    parts = min(SMOKE.targets_keys, TARGETS)
    for name in (OTHERS_CALM, OTHERS_STALLED):
        assert found[name]["samples"] >= (parts - 1) * found[name]["writes"] // 2 > 0
        assert 0 < found[name]["apply_p50_ms"] <= found[name]["apply_p99_ms"]
    assert found[MISSED_MEMORY]["missed"] == SMOKE.stall_records
    assert found[MISSED_MEMORY]["calm_mb"] > 0 and found[MISSED_MEMORY]["grown_mb"] >= 0


def test_who_is_stopped_goes_on_afterwards() -> None:
    with Child("targets", {"targets": 1, "transport": "raw", "directory": "", "keep": False}) as child:
        child.heard()
        with pytest.raises(RoundFailed, match="said nothing"), stopped(child.pid):
            child.ask({"do": "wait", "records": [0], "timeout_s": 1}, 0.3)
        assert child.heard()["targets"][0]["records"] == 0


def test_dummies_save_a_player_that_starts_again_from_reading_all(session: Any) -> None:
    backlogs = Backlogs(session, SMOKE)
    for every in SMOKE.dummies:
        backlogs.dummies(every)
    none, some = (block["figures"] for block in session.blocks)
    assert none["read_again"] == SMOKE.dummy_entries - 1 and none["dummies"] == 0
    assert some["read_again"] < 10 + DUMMY_WINDOW and some["dummies"] > 10


# --- targets that note --------------------------------------------------------------------------------------


class Heard:
    """What a target answers."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def greeted(self, position: int) -> None:
        self.said.append(("greeted", position))

    def stale(self, player_term: int, target_term: int) -> None:
        self.said.append(("stale", player_term, target_term))

    def acknowledge(self, position: int) -> None:
        self.said.append(("acknowledged", position))

    def end(self, reason: str) -> None:
        self.said.append(("ended", reason))


def _greeting(target_term: int) -> Greeting:
    return Greeting(Hello("log", 1, target_term, 5), "topic", 0)


def _batch(previous: int, *numbers: int) -> Batch:
    parts = []
    for number in numbers:
        builder = BatchBuilder()
        builder.append(split(transaction(number, 1, 1), 1, 2)[0], None, timestamp_ms=0)
        parts.append(Part(5 + number, builder.build(5 + number), 1000))
    parts.append(dummy(6 + numbers[-1]))
    return Batch(previous, parts, 1000)


def test_a_lean_target_acknowledges_at_once_and_notes_each_part_once() -> None:
    watched, first, second = Watched(LeanSessions()), Heard(), Heard()
    stream = watched.greet(_greeting(1), first)
    stream.receive(_batch(4, 0))
    stream.heartbeat()
    assert first.said == [("greeted", 4), ("acknowledged", 6), ("acknowledged", 6)]
    again = watched.greet(_greeting(2), second)
    again.receive(_batch(4, 0, 2))
    stream.receive(_batch(6, 3))
    assert second.said == [("greeted", 6), ("acknowledged", 8)] and len(first.said) == 3
    watched.greet(_greeting(1), first)
    assert first.said[-1] == ("stale", 1, 2)
    assert watched.records == 2 and len(watched.noted()) == 2


def test_a_durable_target_counts_what_it_has_acknowledged() -> None:
    class Late(LeanSessions):
        def greet(self, greeting: Greeting, answers: Any) -> Any:
            self.answers = answers
            return super().greet(greeting, answers)

    watched = Watched(inner := Late(), at_acknowledgement=True)
    stream = watched.greet(_greeting(1), Heard())
    inner.terms = (9, 9)  # it acknowledges nothing by itself
    stream.receive(_batch(4, 0))
    stream.receive(_batch(6, 2))
    assert watched.records == 0
    inner.answers.acknowledge(6)
    assert watched.records == 1 and watched.first_ns == watched.last_ns > 0
    inner.answers.acknowledge(8)
    assert watched.records == 2
