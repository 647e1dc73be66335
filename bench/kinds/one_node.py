"""`python -m bench ROW`: one Lockstep node against one Apache Kafka node, by rows; `all` of them, or `quick`.

Owns: the rows, the blocks of each, the order of sessions, and the ratios and goals. Equal policies are
paired; the pair that is not equal is named "cross" (the subject flushes, the baseline as shipped does not).
"memory" has no work of its own: it is sampled while the others run. With `--vs self` a broker is compared
with itself, or with one from another source tree (`--baseline-tree`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bench.exit_status import log_progress
from bench.figures.ratios import BASELINE, NO_POLICY, POLICY_PAIRS, SUBJECT, Goal, Ratio
from bench.machine.process import RssSampler
from bench.runner import COMPARED, POLICY, TREE, Comparison, Options, mirror_rounds
from bench.sessions import groups
from bench.sessions.blocks import closed_loop, consume, fill, produce, report_closed, restart
from bench.sessions.jobs import Block
from bench.sessions.session import Session
from bench.sessions.setup import Setup
from bench.settings import FLUSH, OS, PARTITIONS, PRODUCERS

ROWS = ("produce", "latency", "cost", "partitions", "groups", "consume", "memory", "restart")
"""The rows that can be chosen by name; "memory" is sampled while the others load the broker."""
QUICK_ROWS = tuple(row for row in ROWS if row not in ("groups", "cost"))
"""What fits five minutes."""
COST_PRODUCERS = (1, PRODUCERS, 64)
"""The closed loops in which the row "cost" counts the broker's CPU seconds."""
BACKLOG_ROWS = frozenset({"consume", "restart"})
"""Rows that need a backlog; one policy is enough for them."""
_BOTH = (FLUSH, FLUSH)
_CLIENTS = "1 partition: 16 librdkafka producers"


def _of_policies() -> Iterable[Ratio]:
    """The ratios of blocks that run under either policy."""
    for name, title, unit, figure in (
        ("produce", "1 partition: throughput, {}", "MB/s", "produce.mb_per_s"),
        ("latency1.p50", "1 partition: 1 producer, p50, {}", "ms", "latency1.p50_ms"),
        ("latency1.p99", "1 partition: 1 producer, p99, {}", "ms", "latency1.p99_ms"),
        ("latency16.rate", "1 partition: 16 producers, {}", "requests/s", "latency16.requests_per_s"),
        ("latency16.p99", "1 partition: 16 producers, {}, p99", "ms", "latency16.p99_ms"),
        (
            "clients16.rate",
            "1 partition: 16 librdkafka producers, {}",
            "requests/s",
            "clients16.requests_per_s",
        ),
        ("clients16.p99", "1 partition: 16 librdkafka producers, {}, p99", "ms", "clients16.p99_ms"),
    ):
        for pair, (policies, words) in POLICY_PAIRS.items():
            yield Ratio(f"{name}.{pair}", title.format(words), unit, figure, policies)


def _costs() -> Iterable[Ratio]:
    """The ratios of what one request costs the broker."""
    for producers in COST_PRODUCERS:
        for pair, (policies, words) in POLICY_PAIRS.items():
            title = f"1 partition: CPU of a request, {producers} producer(s), {words}"
            yield Ratio(f"cost{producers}.{pair}", title, "us", f"latency{producers}.cpu_us", policies)


def _ratios() -> Iterable[Ratio]:
    yield from _of_policies()
    yield from _costs()
    yield Ratio("commits.flush", "offset commits, both flush", "commits/s", "commits.requests_per_s", _BOTH)
    yield Ratio("commits.p99.flush", "offset commits, both flush, p99", "ms", "commits.p99_ms", _BOTH)
    for name, words in (("start", "starts"), ("join", "gets one more"), ("leave", "loses one")):
        title = f"group of 50 {words}: seconds to settle"
        yield Ratio(f"rebalance.{name}", title, "s", f"rebalance.{name}_s", _BOTH)
    title = "memory of one of 10,000 members, connection included, against 40 KiB"
    yield Ratio("members.memory", title, "KiB", "members.kib_each", _BOTH, bound=40.0)
    yield Ratio("consume.raw", "1 partition: catch-up read", "GB/s", "consume.gb_per_s", NO_POLICY)
    words = "1 partition: catch-up read with librdkafka"
    yield Ratio("consume.client", words, "MB/s", "consume_client.mb_per_s", NO_POLICY)
    yield Ratio("memory.max", "resident memory, highest", "MB", "memory.rss_max_mb", NO_POLICY)
    yield Ratio("memory.median", "resident memory, median", "MB", "memory.rss_median_mb", NO_POLICY)
    yield Ratio("restart", "kill -9 to first ack", "s", "restart.first_ack_s", NO_POLICY)
    for name, words, base in (("one", "1 producer", "latency1"), ("sixteen", "16 producers", "latency16")):
        figure, title = f"partitions_{name}", f"16 partitions: {words}, p50, both flush"
        yield Ratio(f"partitions.{name}", title, "ms", f"{figure}.p50_ms", _BOTH)
        yield Ratio(
            f"growth.{name}",
            f"own growth from 1 to 16 partitions, {words}, p50",
            "ms",
            f"{figure}.p50_ms",
            _BOTH,
            own=f"{base}.p50_ms",
        )
    yield Ratio("partitions.span", "one request over 16 partitions, p50", "ms", "span16.p50_ms", _BOTH)
    title = "own growth, 16 records in one batch to 16 batches, p50"
    yield Ratio("growth.span", title, "ms", "span16.p50_ms", _BOTH, own="span1.p50_ms")


RATIOS = {ratio.name: ratio for ratio in _ratios()}
GOALS = (
    Goal("produce.flush", ">=", 2.0),
    Goal("produce.cross", ">=", 0.9),
    Goal("produce.os", ">=", 1.6),
    Goal("latency1.p50.flush", "<=", 0.65),
    Goal("latency1.p99.flush", "<=", 0.75),
    Goal("latency16.rate.flush", ">=", 4.0),
    Goal("latency16.p99.flush", "<=", 0.2),
    Goal("latency16.rate.cross", ">=", 0.9),
    Goal("consume.raw", ">=", 1.0),
    Goal("memory.max", "<=", 0.15),
    Goal("restart", "<=", 0.2),
    Goal("growth.one", "<=", 1.3),
    Goal("growth.sixteen", "<=", 1.3),
    Goal("commits.flush", ">=", 2.0),
    Goal("rebalance.start", "<=", 1.0),
    Goal("rebalance.join", "<=", 1.0),
    Goal("rebalance.leave", "<=", 1.0),
    Goal("members.memory", "<=", 1.0),
)
"""The project's goals for one node against a warmed-up Apache Kafka 4.4.0."""


@dataclass(frozen=True)
class Planned:
    """One session to come: the side, its kind of broker, the policies that broker serves."""

    side: str
    kind: str
    policies: tuple[str, ...]
    backlog: bool
    """True if backlogs are filled, read and recovered in it: once per side and round is enough."""

    def __str__(self) -> str:
        return f"{self.kind} {'+'.join(self.policies)}"


class OneNode(Comparison[Planned, Session]):
    """One Lockstep node against one Apache Kafka node, or a broker against itself, row by row."""

    name, word = "one node", ""
    options: ClassVar[Options] = {
        "row": {
            "choices": [*ROWS, "all", "quick"],
            "help": "one row, 'all' of them, or 'quick': all but groups and cost, with --quick",
        },
        **COMPARED,
        **TREE,
        **POLICY,
    }
    ratios, goals = RATIOS, GOALS

    def __init__(self, chosen: argparse.Namespace) -> None:
        chosen.quick = chosen.quick or chosen.row == "quick"
        super().__init__(chosen)
        self.rows = frozenset({"all": ROWS, "quick": QUICK_ROWS}.get(chosen.row, [chosen.row]))
        self._seen: Counter[Planned] = Counter()

    @property
    def kept_name(self) -> str:
        return f"{self.chosen.row}-{self.chosen.subject}-vs-{self.baseline}"

    def plan(self) -> Sequence[Planned]:
        """Kafka flushes by topic, so one process serves all policies; Lockstep needs a process for each."""
        policies = tuple(self.chosen.policy or (FLUSH, OS))
        sides = ((BASELINE, self.baseline), (SUBJECT, self.chosen.subject))
        one = [each for side, kind in sides for each in _sessions_of(side, kind, policies)]
        return mirror_rounds(
            [each for each in one if each.backlog or self.rows - BACKLOG_ROWS], self.sizes.rounds
        )

    def session(self, planned: Planned) -> Session:
        setup = Setup(planned.kind, planned.policies, tree=self.tree_of(planned.side))
        return Session(planned.side, setup, self.sizes, self.parent)

    def measure(self, planned: Planned, session: Session) -> None:
        with_restart = "restart" in self.rows and self._seen[planned] < self.sizes.restart_sessions
        self._seen[planned] += 1
        session.open()
        sampler = RssSampler(session.target.pids)
        with sampler.sample_rss():
            run(
                session, self.rows if planned.backlog else self.rows - BACKLOG_ROWS, with_restart=with_restart
            )
        found = sampler.result()
        if planned.backlog:  # it served every row: only then its memory is beside others'
            session.memory = found
        log_progress(f"  memory           {found['rss_max_mb']:.0f} MB at most")


def _sessions_of(side: str, kind: str, policies: tuple[str, ...]) -> list[Planned]:
    if kind == "kafka":
        return [Planned(side, kind, policies, True)]
    return [Planned(side, kind, (policy,), place == 0) for place, policy in enumerate(policies)]


def run(session: Session, rows: frozenset[str], *, with_restart: bool) -> None:
    """All chosen rows, on one warm session."""
    for policy in session.policies:
        if rows & {"produce", "memory"}:
            produce(session, policy)
        if rows & {"latency", "memory", "partitions"}:
            latency(session, policy)
        if "cost" in rows:
            cost(session, policy, measured=rows & {"latency", "memory", "partitions"})
        if "partitions" in rows:
            partitions(session, policy)
        if "groups" in rows:
            groups.run(session, policy)
    if rows & BACKLOG_ROWS:
        topic, filled = fill(session, session.policies[-1])
        if "consume" in rows:
            consume(session, topic, filled)
        if with_restart:
            restart(session, topic, filled)


def cost(session: Session, policy: str, *, measured: Collection[str] = ()) -> None:
    """Closed-loop producers: what a request of one 1 KB record costs the broker, in CPU seconds.

    Args: measured: not empty where `latency` has measured one producer and sixteen.
    """
    for producers in COST_PRODUCERS:
        if not measured or producers not in (1, PRODUCERS):
            closed_loop(session, f"latency{producers}", policy, producers)


def latency(session: Session, policy: str) -> None:
    """One closed-loop producer, then sixteen; then sixteen that are a real client."""
    closed_loop(session, "latency1", policy, 1)
    closed_loop(session, "latency16", policy, PRODUCERS)

    def work(topic: str) -> Block:
        result = session.client_closed_loop(topic, PRODUCERS)
        return {**result, "writes": result["total_requests"]}

    report_closed(session.measure("clients16", policy, work, max_outstanding=PRODUCERS))


def partitions(session: Session, policy: str) -> None:
    """Sixteen partitions instead of one, in three shapes; the first and second compare with `latency`.

    "one": one producer writes to the partitions in turn. "sixteen": sixteen producers, all partitions.
    "span": one request carries a record for every partition, against the same records in one batch.
    """
    if policy == FLUSH:
        closed_loop(session, "partitions_one", policy, 1, PARTITIONS)
        closed_loop(session, "partitions_sixteen", policy, PRODUCERS, PARTITIONS)
        closed_loop(session, "span1", policy, 1, 1, records=PARTITIONS)
        closed_loop(session, "span16", policy, 1, PARTITIONS, spread="span")
