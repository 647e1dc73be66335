"""The brokers of a run: three durable nodes of either kind, and one node of ours.

Owns: how they are started and warmed up, and which blocks each is for. Kafka's nodes flush every write, those
of its transaction and offset logs too; Lockstep's flush every commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.figures.ratios import BASELINE, SUBJECT
from bench.player.backlogs import Backlogs, Stalled
from bench.player.delays import Blocks
from bench.player.points import (
    CALM_MS,
    GRPC,
    LOG_PLAYERS,
    LOOPS,
    OPEN,
    PLAIN,
    RATE_SHARE,
    STORED,
    TRANSACTIONS,
    Axes,
    Point,
)
from bench.sessions.children import HOSTING
from bench.sessions.cluster import NodesSession
from bench.sessions.session import LockstepSession
from bench.sessions.setup import GROUPS, Setup
from bench.settings import NODES, Sizes

DELAYS, SUSTAINED, BACKLOGS, STALLED = "delays", "sustained", "backlogs", "stalled"
PARTS = (DELAYS, SUSTAINED, BACKLOGS, STALLED)
KAFKA, LOCKSTEP, ONE = "kafka", "lockstep", "one"
FAR_TOO_LONG = 4
TRANSACTION_WIDTH = 3
"""Of those that Kafka is warmed up with."""


@dataclass(frozen=True)
class Planned:
    """One session to come. `first`: of its kind in this run; some blocks are measured once."""

    kind: str
    parts: frozenset[str]
    first: bool

    def __str__(self) -> str:
        if self.kind == ONE:
            return f"1 x lockstep, {', '.join(sorted(self.parts))}"
        return f"{NODES} x {self.kind}, {', '.join(sorted(self.parts))}"


def plan_sessions(parts: frozenset[str], rounds: int) -> list[Planned]:
    """Three nodes of both kinds in turn, mirrored every second round (ABBA); then one node."""
    plan: list[Planned] = []
    for number in range(rounds):
        first = number == 0
        ours = parts & ({DELAYS, SUSTAINED} if first else {DELAYS})
        one = [Planned(LOCKSTEP, ours, first), Planned(KAFKA, parts & {DELAYS}, first)]
        plan += [each for each in (one if number % 2 == 0 else one[::-1]) if each.parts]
    of_one = parts & {BACKLOGS, STALLED}
    return plan + ([Planned(ONE, of_one, True)] if of_one else [])


class PlayerNode(LockstepSession):
    """One node that takes players."""

    def leader_directory(self, topic: str) -> Path:
        return self.directory


class PlayerNodes(NodesSession):
    """Three nodes: Lockstep's take players, Kafka's are warmed up with transactions, too."""

    def leader_directory(self, topic: str) -> Path:
        (leader,) = self.leaders(topic)
        return self.cluster.nodes[leader].directory

    def _warm_slice(self, topic: str, producers: int) -> int:
        done = super()._warm_slice(topic, producers)
        if self.kind == KAFKA:
            words = {"bootstrap": self.target.bootstrap, "topic": topic, "partitions": TRANSACTION_WIDTH}
            result = self.job("client_transactions", **words, seconds=1.0, warmup_s=0.0)
            done += int(result["total_transactions"])
        return done


def make(planned: Planned, sizes: Sizes, parent: Path, heap: str) -> PlayerNode | PlayerNodes:
    """A session that is not started yet."""
    if planned.kind == ONE:
        return PlayerNode(sizes, parent, command=HOSTING)
    if planned.kind == KAFKA:
        setup = Setup(KAFKA, settings={"log.flush.interval.messages": "1"}, heap=heap)
        return PlayerNodes(BASELINE, setup, sizes, parent)
    return PlayerNodes(SUBJECT, Setup(LOCKSTEP, settings={GROUPS: "1"}, command=HOSTING), sizes, parent)


def measure(planned: Planned, session: PlayerNode | PlayerNodes, axes: Axes) -> None:
    """Start it and run its blocks. RoundFailed, TargetFailed."""
    if isinstance(session, PlayerNode):
        session.start()
    else:
        session.open()
    if planned.kind == KAFKA:
        _kafka(Blocks(session, axes), axes, with_two_level=planned.first)
        return
    if DELAYS in planned.parts:
        _log_player(Blocks(session, axes), axes)
    if SUSTAINED in planned.parts:
        _find_sustained(Blocks(session, axes), axes)
    if BACKLOGS in planned.parts:
        _backlogs(Backlogs(session, axes), axes)
    if STALLED in planned.parts:
        stalled = Stalled(session, axes)
        stalled.others()
        stalled.measure_missed()


def _kafka(blocks: Blocks, axes: Axes, *, with_two_level: bool) -> None:
    for point in axes.points:
        for loop in LOOPS:
            for system in (PLAIN, TRANSACTIONS):
                blocks.kafka(system, loop, point)
    if with_two_level:
        for targets in axes.two_level_targets:
            blocks.two_level(targets)


def _log_player(blocks: Blocks, axes: Axes) -> None:
    for point in axes.points:
        systems = LOG_PLAYERS if point.keys == axes.targets_keys else (GRPC,)
        for loop in LOOPS:
            for system in systems:
                blocks.log_player(system, loop, point)
    for point in axes.stored:
        for loop in LOOPS:
            blocks.log_player(STORED, loop, point)


def _find_sustained(blocks: Blocks, axes: Axes) -> None:
    """Rates ascend until one is not kept, or the delay is far too long."""
    for targets in axes.sustained_targets:
        for rate in axes.sustained_rates:
            name = f"sustained_t{targets}_r{rate:.0f}"
            words = {"rate": rate, "seconds": axes.sustained_s}
            point = Point(targets, axes.targets_keys)
            block = blocks.log_player(GRPC, OPEN, point, name=name, **words)
            figures = block["figures"]
            if figures["per_s"] < RATE_SHARE * rate or figures["player_mean_ms"] > FAR_TOO_LONG * CALM_MS:
                break


def _backlogs(backlogs: Backlogs, axes: Axes) -> None:
    for system in LOG_PLAYERS:
        backlogs.throughput(system)
    for missed in axes.missed:
        backlogs.recovery(missed)
    for every in axes.dummies:
        backlogs.dummies(every)
