"""`python -m bench nodes3`: three Lockstep nodes against three Apache Kafka nodes, on this machine.

Owns: the order of sessions, the blocks, the ratios and goals: once for one partition (in Lockstep one data
group, "g1") and once for three (a group each, "g3"). Block names end in the number of partitions. One side's
three nodes are alive at a time. The leader is lost by kill -9, several times a session.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from bench.exit_status import log_progress
from bench.figures.ratios import ANY, BASELINE, NO_POLICY, POLICY_PAIRS, SUBJECT, Goal, Ratio
from bench.machine.process import RssSampler
from bench.runner import COMPARED, HEAP, POLICY, TREE, Comparison, Options, mirror_rounds
from bench.sessions.blocks import closed_loop, produce
from bench.sessions.cluster import NodesSession
from bench.sessions.commits import count_commits
from bench.sessions.jobs import WrongCount, unclaimed_block
from bench.sessions.setup import GROUPS, Setup
from bench.settings import FLUSH, NODES, NODES_FULL, NODES_QUICK, OS, PRODUCERS

ROWS = ("produce", "latency", "memory", "loss")
SHAPES = (1, 3)
"""Partitions of a block's topic, each in a Lockstep group of its own; titles name the partitions."""
RESUMES_S = 1.0


def _of_shape(shape: int) -> Iterable[Ratio]:
    end = f"g{shape}"
    where = "1 partition" if shape == 1 else f"{shape} partitions"
    for pair, (policies, words) in POLICY_PAIRS.items():
        for name, title, unit, figure in (
            ("produce", "throughput", "MB/s", "produce_{}.mb_per_s"),
            ("latency1.p50", "1 producer, p50", "ms", "latency1_{}.p50_ms"),
            ("latency1.p99", "1 producer, p99", "ms", "latency1_{}.p99_ms"),
            ("latency16.rate", "16 producers", "requests/s", "latency16_{}.requests_per_s"),
            ("latency16.p99", "16 producers, p99", "ms", "latency16_{}.p99_ms"),
            ("cost16", "16 producers, CPU of a request, all nodes", "us", "latency16_{}.cpu_us"),
        ):
            full_title = f"{where}: {title}, {words}"
            yield Ratio(f"{name}.{pair}.{end}", full_title, unit, figure.format(shape), policies)
    title = f"{where}: resident memory of all nodes, highest"
    yield Ratio(f"memory.{end}", title, "MB", f"memory_{shape}.rss_max_mb", NO_POLICY)
    title = f"{where}: leader killed to next acknowledgement"
    yield Ratio(f"loss.{end}", title, "s", f"loss_{shape}.first_ack_s", NO_POLICY)
    title = f"{where}: the same, against {RESUMES_S:g} s"
    yield Ratio(f"resume.{end}", title, "s", f"loss_{shape}.first_ack_s", NO_POLICY, bound=RESUMES_S)


RATIOS = {ratio.name: ratio for shape in SHAPES for ratio in _of_shape(shape)}
GOALS = tuple(
    Goal(f"{name}.g{shape}", relation, bound)
    for shape in SHAPES
    for name, relation, bound in (
        ("produce.flush", ">=", 4.0),
        ("latency1.p50.flush", "<=", 0.5),
        ("latency1.p99.flush", "<=", 0.5),
        ("latency16.rate.flush", ">=", 4.0),
        ("latency16.p99.flush", "<=", 0.35),
        ("produce.cross", ">=", 1.5),
        ("latency16.rate.cross", ">=", 1.0),
        ("latency1.p50.cross", "<=", 1.2),
        ("memory", "<=", 0.15),
        ("resume", "<=", 1.0),
    )
)
"""The project's goals for three nodes against three warmed-up Apache Kafka 4.4.0 nodes."""


@dataclass(frozen=True)
class Planned:
    """One session to come: three nodes of a kind, the policies and numbers of partitions they serve."""

    side: str
    kind: str
    policies: tuple[str, ...]
    shapes: tuple[int, ...]

    def __str__(self) -> str:
        words = "+".join(map(str, self.shapes))
        return f"{NODES} x {self.kind} {'+'.join(self.policies)}, partitions {words}"


class Nodes3(Comparison[Planned, NodesSession]):
    """Three Lockstep nodes against three Apache Kafka nodes, on this machine."""

    name = "nodes3"
    options: ClassVar[Options] = {
        "row": {"nargs": "?", "default": "all", "choices": [*ROWS, "all"], "help": "default: all"},
        **COMPARED,
        **TREE,
        **HEAP,
        **POLICY,
        "--groups": {"type": int, "choices": SHAPES, "action": "append", "help": "default: both"},
    }
    quick, whole = NODES_QUICK, NODES_FULL
    ratios, goals = RATIOS, GOALS

    def __init__(self, chosen: argparse.Namespace) -> None:
        super().__init__(chosen)
        self.rows = frozenset(ROWS if chosen.row == "all" else [chosen.row])

    def plan(self) -> Sequence[Planned]:
        """Kafka serves all policies and shapes in one life, Lockstep one of each."""
        policies, shapes = tuple(self.chosen.policy or (FLUSH, OS)), tuple(self.chosen.groups or SHAPES)
        one: list[Planned] = []
        for side, kind in ((BASELINE, self.baseline), (SUBJECT, self.chosen.subject)):
            if kind == "kafka":
                one.append(Planned(side, kind, policies, shapes))
            else:
                one += [Planned(side, kind, (each,), (shape,)) for each in policies for shape in shapes]
        return mirror_rounds(one, self.sizes.rounds)

    def session(self, planned: Planned) -> NodesSession:
        settings = {} if planned.kind == "kafka" else {GROUPS: str(*planned.shapes)}
        tree, heap = self.tree_of(planned.side), self.chosen.heap
        setup = Setup(planned.kind, planned.policies, settings, heap=heap, tree=tree)
        return NodesSession(planned.side, setup, self.sizes, self.parent)

    def measure(self, planned: Planned, session: NodesSession) -> None:
        session.open()
        if self.rows - {"loss"}:
            _measure_load(session, self.rows, planned.shapes)
        if "loss" in self.rows:
            for shape in planned.shapes:
                _losses(session, shape, self.sizes.restarts_per_session)
        count_commits(session)


def _measure_load(session: NodesSession, rows: frozenset[str], shapes: tuple[int, ...]) -> None:
    """Memory is sampled while all nodes live."""
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for shape in shapes:
            for policy in session.policies:
                _blocks(session, rows, policy, shape)
    found = sampler.result()
    log_progress(f"  memory           {found['rss_max_mb']:.0f} MB at most, all nodes")
    session.blocks += [unclaimed_block(f"memory_{shape}", ANY, found) for shape in shapes]


def _blocks(session: NodesSession, rows: frozenset[str], policy: str, shape: int) -> None:
    if rows & {"produce", "memory"}:
        name = f"produce_{shape}"
        session.once_more(name, partial(produce, session, policy, name, shape))
    if rows & {"latency", "memory"}:
        for producers in (1, PRODUCERS):
            name = f"latency{producers}_{shape}"
            work = partial(closed_loop, session, name, policy, producers, shape, spread="led")
            session.once_more(name, work)


def _losses(session: NodesSession, shape: int, count: int) -> None:
    topic = session.topic(session.policies[0], shape)
    acked = 0
    for _ in range(count):
        figures = session.once_more(f"loss_{shape}", lambda: session.lose_leader(topic))
        session.await_replicas(topic)
        acked += figures["total_records"]
        stored = sum(session.end_offsets(topic, shape))
        if stored < acked:
            raise WrongCount(f"{session.kind}: {acked - stored} acknowledged records lost with a leader")
        session.blocks.append(unclaimed_block(f"loss_{shape}", ANY, figures))
        log_progress(f"  loss_{shape}           acknowledged again after {figures['first_ack_s']:.2f} s")
