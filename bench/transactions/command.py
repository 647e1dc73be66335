"""`python -m bench transactions`: short transactions of a real client, three nodes against three that flush.

Owns: the command line, the sessions (Lockstep once with one data group and once with its default spread,
Apache Kafka between them), the blocks and their ratios. A transaction is begun, one record is written to
each of 1 or 10 partitions, and it is committed; what is timed is all of that, and the commit alone beside it.
Kafka flushes every append of every topic, its internal ones included, as Lockstep does. Exit status as of
`python -m bench`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures.ratios import BASELINE, SUBJECT, Goal, Ratio
from bench.progress import log_progress
from bench.running import comparison
from bench.sessions.cluster import NODES, NodesSession
from bench.sessions.failures import RoundFailed
from bench.sessions.jobs import Block, Running
from bench.settings import FLUSH, NODES_FULL, NODES_QUICK, Sizes
from compat_tests.clusters import KafkaCluster, LockstepCluster

ONE, SPREAD = "one", "spread"
"""Lockstep with lockstep.data.groups=1, and with its default."""
WIDTHS = (1, 10)
"""Partitions of a transaction."""
WARM_WIDTH = 10
MARKERS_S = 10.0
"""A committed transaction's markers may still be on their way."""

RATIOS = {
    ratio.name: ratio
    for groups, words in ((ONE, "1 group"), (SPREAD, "default groups"))
    for width in WIDTHS
    for kind, title in (("p50", "begin to committed, p50"), ("p99", "begin to committed, p99"))
    for ratio in [
        Ratio(
            f"transactions.{kind}.{width}.{groups}",
            f"{words}: transaction over {width} partition{'s' if width > 1 else ''}, {title}",
            "ms",
            f"transaction{width}_{groups}.{kind}_ms",
            (FLUSH, FLUSH),
        )
    ]
}
GOALS = tuple(
    Goal(f"transactions.p50.{width}.{groups}", "<=", bound)
    for groups, bound in ((ONE, 0.1), (SPREAD, 0.25))
    for width in WIDTHS
)
"""What the project wants to show for three nodes against three warmed-up Apache Kafka 4.4.0 nodes."""


class TransactionsSession(NodesSession):
    """Three nodes of one side that flush; `groups`: ONE or SPREAD, or both where it makes no difference."""

    block = "transaction"
    widths: tuple[int, ...] = WIDTHS

    def __init__(
        self, side: str, kind: str, groups: tuple[str, ...], sizes: Sizes, parent: Path, heap: str
    ) -> None:
        self.groups = groups
        leaders = 1 if groups == (ONE,) else NODES
        super().__init__(side, kind, (FLUSH,), (leaders,), sizes, parent, None, heap)

    def outcome(self) -> Block:
        """Like `Session.outcome`, with the spreads of data groups."""
        return {**super().outcome(), "groups": self.groups}

    def _make_target(self, tree: Path | None) -> Running:
        if self.kind == "kafka":
            settings = {"log.flush.interval.messages": "1"}
            self.cluster = KafkaCluster(NODES, settings, heap=self._heap, directory=self.directory)
        else:
            settings = {"log.flush": "always", "min.insync.replicas": "2"}
            if self.groups == (ONE,):
                settings["lockstep.data.groups"] = "1"
            self.cluster = LockstepCluster(NODES, settings, directory=self.directory)
        return self.cluster

    def _warm_topics(self) -> list[str]:
        return [self.topic(FLUSH, WARM_WIDTH)]

    def _warm_slice(self, topic: str, producers: int) -> int:
        return int(self._transactions(topic, WARM_WIDTH, seconds=1.5, warmup_s=0.0)["writes"])

    def _transactions(self, topic: str, width: int, **words: float) -> Block:
        result = self.job(
            "client_transactions", bootstrap=self.target.bootstrap, topic=topic, partitions=width, **words
        )
        return {**result, "writes": result["total_transactions"]}

    def count_records(self, topic: str, partitions: int, acknowledged: int) -> None:
        """Every transaction left a record and a marker in each partition."""
        deadline = time.monotonic() + MARKERS_S
        while True:
            try:
                super().count_records(topic, partitions, acknowledged)
                return
            except RoundFailed:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def run(self) -> None:
        """The whole session."""
        self.open()
        self.blocks_of()

    def blocks_of(self) -> None:
        """Everything that is compared."""
        for groups in self.groups:
            for width in self.widths:
                self._block(f"{self.block}{width}_{groups}", width, self._transactions)

    def _block(self, name: str, width: int, work: Callable[..., Block]) -> None:
        """Args: work: takes what `_transactions` takes."""
        window = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}
        block = self.measure(
            name, FLUSH, lambda topic: work(topic, width, **window), partitions=width, max_outstanding=1
        )
        figures = block["figures"]
        words = f"p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms"
        if "commit_p50_ms" in figures:
            words += f", commit alone p50 {figures['commit_p50_ms']:.2f} ms"
        log_progress(f"  {name:20} {words}")


@dataclass(frozen=True)
class Planned:
    """One session to come."""

    side: str
    kind: str
    groups: tuple[str, ...]

    def __str__(self) -> str:
        return f"{NODES} x {self.kind}, {' and '.join(self.groups)}"


def plan_sessions(subject: str, baseline: str, rounds: int) -> list[Planned]:
    """Kafka between Lockstep's two, mirrored every second round, so that a drift hits both sides."""

    def of(side: str, kind: str) -> list[Planned]:
        if kind == "kafka":
            return [Planned(side, kind, (ONE, SPREAD))]
        return [Planned(side, kind, (groups,)) for groups in (ONE, SPREAD)]

    first, *rest = of(SUBJECT, subject)
    one = [first, *of(BASELINE, baseline), *rest]
    return [each for number in range(rounds) for each in (one if number % 2 == 0 else one[::-1])]


def run_comparison(
    name: str,
    words: str | None,
    arguments: Sequence[str],
    session_of: type[TransactionsSession],
    ratios: dict[str, Ratio],
    goals: tuple[Goal, ...],
) -> int:
    """Run one such benchmark as its command line asks; the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=words)
    comparison.add_options(parser, quick="short blocks and a short warm-up")
    comparison.add_heap(parser)
    options = parser.parse_args(arguments)
    required = comparison.required_goals(parser, options, ratios, goals)
    sizes = comparison.apply_sizes(NODES_QUICK if options.quick else NODES_FULL, options)
    plan = plan_sessions(options.subject, comparison.baseline_of(options), sizes.rounds)

    def run_plan(parent: Path) -> comparison.Outcomes:
        def make(planned: Planned) -> TransactionsSession:
            return session_of(planned.side, planned.kind, planned.groups, sizes, parent, options.heap)

        def measure(_: Planned, session: TransactionsSession) -> None:
            session.run()

        return comparison.run_sessions(plan, make, measure)

    return comparison.run_comparison(
        name,
        [f"python -m bench {name}"],
        options,
        sizes,
        run_plan,
        required,
        goals,
        ratios,
        kind=name,
        heap=options.heap,
    )


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    return run_comparison("transactions", __doc__, arguments, TransactionsSession, RATIOS, GOALS)
