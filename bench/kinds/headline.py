"""`python -m bench headline`: the figures the project is judged by, one node and three, against Apache Kafka.

Owns: the blocks, their sizes, the order of sessions, and the ratios and goals, which are those of step 9's
issue, "The head-to-head" (docs/sources.md). One node first, then three; one side is alive at a time; rounds
are mirrored (ABBA), so that neighbours of one side are A/A pairs. Memory is sampled while all blocks run but
the restart. Every latency of the closed loops stays beside the result, in `raw/RESULT/BLOCK-POLICY-SESSION`,
which its block names (`bench.raw`). "flush": both sides flush each acknowledged write; "cross": a Lockstep
that flushes against a Kafka as shipped, which does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.exit_status import log_progress
from bench.figures.ratios import ANY, BASELINE, NO_POLICY, POLICY_PAIRS, SUBJECT, Goal, Ratio
from bench.machine.process import RssSampler
from bench.raw import RawSamples
from bench.runner import COMPARED, HEAP, Comparison, Options
from bench.sessions import blocks
from bench.sessions.cluster import NodesSession
from bench.sessions.jobs import unclaimed_block
from bench.sessions.session import Session
from bench.sessions.setup import Setup
from bench.settings import FAN_OUT_BYTES, FLUSH, NODES, OS, PRODUCERS, Sizes

SMALL_RECORD_BYTES = 100
MANY_PRODUCERS = 64
NODES_PARTITIONS = 16
ROWS = ("produce", "small", "latency", "consume", "fan_out", "restart")
"""The parts that can be chosen by name."""
NODES_ROWS = frozenset({"produce", "latency"})
"""What three nodes have of them."""


# --- sizes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadlineSizes(Sizes):
    """`Sizes` for one session, and what only the headline has."""

    small_records: int = 4_500_000
    """Of 100 bytes, for either policy."""
    small_warmup_records: int = 1_500_000
    fan_out_bytes: int = FAN_OUT_BYTES
    """Written once, read by each of the groups."""


ONE_FULL = HeadlineSizes(
    name="headline",
    rounds=4,
    produce_records={FLUSH: 900_000, OS: 900_000},
    client_warmup_records=300_000,
    latency_s=4.0,
    latency_warmup_s=1.0,
    backlog_bytes=512 << 20,
    read_passes=8,
    restart_sessions=4,
    warmup_min_s=30.0,
    warmup_max_s=60.0,
    plain_warmup_s=4.0,
)
THREE_FULL = replace(
    ONE_FULL,
    name="headline-nodes",
    produce_records={FLUSH: 240_000, OS: 240_000},
    client_warmup_records=240_000,
    latency_s=6.0,
    backlog_bytes=0,
    warmup_min_s=45.0,
    warmup_max_s=75.0,
)
ONE_QUICK = replace(
    ONE_FULL,
    name="headline-quick",
    rounds=1,
    produce_records={FLUSH: 15_000, OS: 15_000},
    client_warmup_records=0,
    latency_s=1.0,
    latency_warmup_s=0.3,
    backlog_bytes=64 << 20,
    read_passes=2,
    warmup_min_s=4.0,
    warmup_max_s=6.0,
    plain_warmup_s=1.0,
    kind_warmup_max_s=1.0,
    small_records=60_000,
    small_warmup_records=20_000,
    fan_out_bytes=8 << 20,
)
THREE_QUICK = replace(
    ONE_QUICK, name="headline-nodes-quick", produce_records={FLUSH: 6_000, OS: 6_000}, backlog_bytes=0
)


# --- ratios and goals --------------------------------------------------------------------------------------

_PAIRS: Final = {name: POLICY_PAIRS[name] for name in ("flush", "cross")}
"""A Lockstep that does not flush is in no headline."""
_ONE: Final = (
    ("produce", "throughput", "MB/s", "mb_per_s"),
    ("small", "100-byte records", "records/s", "records_per_s"),
    ("latency1.rate", "1 producer", "requests/s", "requests_per_s"),
    ("latency1.p50", "1 producer, p50", "ms", "p50_ms"),
    ("latency1.p99", "1 producer, p99", "ms", "p99_ms"),
    ("latency16.rate", "16 producers", "requests/s", "requests_per_s"),
    ("latency16.p99", "16 producers, p99", "ms", "p99_ms"),
    ("latency64.rate", "64 producers", "requests/s", "requests_per_s"),
    ("latency64.p99", "64 producers, p99", "ms", "p99_ms"),
    ("fan_out", "write and fan-out to 8 groups", "MB/s", "mb_per_s"),
)
_THREE: Final = (
    ("produce", "throughput", "MB/s", "mb_per_s"),
    ("latency1.rate", "1 producer", "requests/s", "requests_per_s"),
    ("latency1.p50", "1 producer, p50", "ms", "p50_ms"),
    ("latency1.p99", "1 producer, p99", "ms", "p99_ms"),
    ("latency16.rate", "16 producers", "requests/s", "requests_per_s"),
    ("latency16.p50", "16 producers, p50", "ms", "p50_ms"),
    ("latency16.p99", "16 producers, p99", "ms", "p99_ms"),
)


def _of_nodes(nodes: str, rows: Iterable[tuple[str, str, str, str]], dot: str, bar: str) -> Iterable[Ratio]:
    """Args: dot, bar: how names of ratios and of blocks begin."""
    for pair, (policies, words) in _PAIRS.items():
        for name, title, unit, figure in rows:
            block = f"{bar}{name.partition('.')[0]}.{figure}"
            yield Ratio(
                f"{dot}{name}.{pair}", f"{nodes}, 1 partition: {title}, {words}", unit, block, policies
            )


def _ratios() -> Iterable[Ratio]:
    yield from _of_nodes("one node", _ONE, "", "")
    yield Ratio("consume", "one node, 1 partition: catch-up read", "GB/s", "consume.gb_per_s", NO_POLICY)
    yield Ratio("memory", "one node: resident memory, highest", "MB", "memory.rss_max_mb", NO_POLICY)
    yield Ratio("restart", "one node: kill -9 to first ack", "s", "restart.first_ack_s", NO_POLICY)
    yield from _of_nodes("three nodes", _THREE, "n3.", "n3_")
    title = "three nodes, 16 partitions: 16 producers, p50, both flush"
    yield Ratio("n3.partitions16.p50", title, "ms", "n3_partitions16.p50_ms", (FLUSH, FLUSH))
    title = "three nodes: resident memory of all, highest"
    yield Ratio("n3.memory", title, "MB", "n3_memory.rss_max_mb", NO_POLICY)


RATIOS: Final = {ratio.name: ratio for ratio in _ratios()}
GOALS: Final = (
    Goal("produce.flush", ">=", 3.0),
    Goal("latency64.rate.flush", ">=", 5.0),
    Goal("produce.cross", ">=", 1.2),
    Goal("small.cross", ">=", 1.5),
    Goal("consume", ">=", 1.5),
    Goal("fan_out.cross", ">=", 1.2),
    Goal("memory", "<=", 0.1),
    Goal("restart", "<=", 0.1),
    Goal("n3.produce.cross", ">=", 2.0),
    Goal("n3.latency16.rate.cross", ">=", 1.5),
    Goal("n3.latency1.p50.cross", "<=", 1.0),
    Goal("n3.latency1.p99.cross", "<=", 0.7),
    Goal("n3.produce.flush", ">=", 6.0),
    Goal("n3.latency16.rate.flush", ">=", 6.0),
    Goal("n3.partitions16.p50", "<=", 0.3),
)
"""Against a warmed-up Apache Kafka 4.4.0 on the same machine."""


# --- the run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """One session to come."""

    nodes: int
    side: str
    kind: str
    round: int

    @property
    def policies(self) -> tuple[str, ...]:
        """Kafka serves both policies in one life."""
        return (FLUSH, OS) if self.kind == "kafka" else (FLUSH,)

    def __str__(self) -> str:
        return f"{self.nodes} x {self.kind} {'+'.join(self.policies)}, round {self.round + 1}"


class Headline(Comparison[Planned, Session]):
    """The figures the project is judged by, in one run of at most 40 minutes; with --quick three."""

    name = "headline"
    options: ClassVar[Options] = {
        **COMPARED,
        **HEAP,
        "--nodes": {"type": int, "choices": (1, NODES), "action": "append", "help": "default: both"},
        "--row": {"choices": ROWS, "action": "append", "help": "default: all"},
    }
    ratios, goals, intervals = RATIOS, GOALS, True

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._raw = RawSamples()
        super().__init__(chosen)
        self.rows = frozenset(chosen.row or ROWS)
        self.nodes = [each for each in chosen.nodes or (1, NODES) if each == 1 or self.rows & NODES_ROWS]

    def check(self, parser: argparse.ArgumentParser) -> None:
        super().check(parser)
        if not self.nodes:
            parser.error(f"three nodes are measured in {' and '.join(sorted(NODES_ROWS))} only")

    def choose_sizes(self, sizes: Any) -> dict[int, HeadlineSizes]:
        """By number of nodes."""
        chosen = (ONE_QUICK, THREE_QUICK) if self.chosen.quick else (ONE_FULL, THREE_FULL)
        return {
            nodes: super(Headline, self).choose_sizes(each)
            for nodes, each in zip((1, NODES), chosen, strict=True)
        }

    def kept_sizes(self) -> dict[str, Any]:
        return {str(nodes): vars(sizes) for nodes, sizes in self.sizes.items()}

    def plan(self) -> Sequence[Planned]:
        sides = ((BASELINE, self.baseline), (SUBJECT, self.chosen.subject))
        return [
            Planned(nodes, side, kind, number)
            for nodes in self.nodes
            for number in range(self.sizes[nodes].rounds)
            for side, kind in (sides if number % 2 == 0 else sides[::-1])
        ]

    def session(self, planned: Planned) -> Session:
        heap = self.chosen.heap if planned.nodes > 1 else ""
        setup, made = Setup(planned.kind, planned.policies, heap=heap), NodesSession if heap else Session
        session = made(planned.side, setup, self.sizes[planned.nodes], self.parent)
        session.keep_raw = partial(self._raw.add, self.plan().index(planned) + 1)
        session.more = {"nodes": planned.nodes, "round": planned.round}
        return session

    def measure(self, planned: Planned, session: Session) -> None:
        session.open()
        if isinstance(session, NodesSession):
            three_nodes(session, self.rows)
        else:
            one_node(session, self.sizes[1], self.rows)

    def keep(self, result: dict[str, Any]) -> Path:
        path = super().keep(result)
        self._raw.write(path)  # last: a disk that it fills costs nothing else
        return path


def one_node(session: Session, sizes: HeadlineSizes, rows: frozenset[str]) -> None:
    """All chosen parts, on a warm broker. RoundFailed, TargetFailed."""
    topic, filled = "", None
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for policy in session.policies:
            _one_policy(session, policy, sizes, rows)
        if rows & {"consume", "restart"}:
            topic, filled = blocks.fill(session, session.policies[-1])
        if filled is not None and "consume" in rows:
            blocks.consume(session, topic, filled)
    session.memory = sampler.result()
    log_progress(f"  memory           {session.memory['rss_max_mb']:.0f} MB at most")
    if filled is not None and "restart" in rows:
        blocks.restart(session, topic, filled)


def _one_policy(session: Session, policy: str, sizes: HeadlineSizes, rows: frozenset[str]) -> None:
    if "produce" in rows:
        blocks.produce(session, policy)
    if "small" in rows:
        size, count, warmup = SMALL_RECORD_BYTES, sizes.small_records, sizes.small_warmup_records
        blocks.produce(session, policy, "small", record_bytes=size, records=count, warmup=warmup)
    if "latency" in rows:
        for producers in (1, PRODUCERS, MANY_PRODUCERS):
            blocks.closed_loop(session, f"latency{producers}", policy, producers)
    if "fan_out" in rows:
        blocks.fan_out(session, policy, sizes.fan_out_bytes)


def three_nodes(session: NodesSession, rows: frozenset[str]) -> None:
    """Like `one_node`, for a cluster."""
    sampler = RssSampler(session.target.pids)
    with sampler.sample_rss():
        for policy in session.policies:
            if "produce" in rows:
                session.once_more("n3_produce", partial(blocks.produce, session, policy, "n3_produce"))
            if "latency" in rows:
                _closed_loop(session, "n3_latency1", policy, 1, 1)
                _closed_loop(session, "n3_latency16", policy, PRODUCERS, 1)
                if policy == FLUSH:
                    _closed_loop(session, "n3_partitions16", policy, PRODUCERS, NODES_PARTITIONS)
    figures = sampler.result()
    session.blocks.append(unclaimed_block("n3_memory", ANY, figures))
    log_progress(f"  memory           {figures['rss_max_mb']:.0f} MB at most, all nodes")


def _closed_loop(session: NodesSession, name: str, policy: str, producers: int, partitions: int) -> None:
    work = partial(blocks.closed_loop, session, name, policy, producers, partitions, spread="led")
    session.once_more(name, work)
