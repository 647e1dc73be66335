"""`python -m bench transactions`: short transactions of a real client, three nodes against three that flush.

Owns: the command line, the sessions (Lockstep once with one data group and once with its default spread,
Apache Kafka between them), the blocks and their ratios. A transaction is begun, one record is written to
each of 1 or 10 partitions, and it is committed; what is timed is all of that, and the commit alone beside it.
Kafka flushes every append of every topic, its internal ones included, as Lockstep does. Exit status as of
`python -m bench`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.compare import BASELINE, SUBJECT, BadRequirement, Goal, Ratio, compare, parse_requirement
from bench.device import NoBlockDevice
from bench.facts import code_facts, machine_facts
from bench.kept import LOCAL_RESULTS
from bench.nodes3 import EXIT_FAILED, finish
from bench.nodes_session import HEAP, NODES, NodesSession
from bench.session import Block, RoundFailed, Running, say
from bench.settings import FLUSH, NODES_FULL, NODES_QUICK, PRODUCER_PROPERTIES, Sizes
from compat_tests.clusters import KafkaCluster, LockstepCluster
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import TargetFailed

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
"""What the project wants to show for three nodes against three warmed-up Apache Kafka 4.3.1 nodes."""


class TransactionsSession(NodesSession):
    """Three nodes of one side that flush; `groups`: ONE or SPREAD, or both where it makes no difference."""

    def __init__(
        self, side: str, kind: str, groups: tuple[str, ...], sizes: Sizes, parent: Path, heap: str
    ) -> None:
        self.groups = groups
        super().__init__(side, kind, (FLUSH,), (NODES,), sizes, parent, None, heap)

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

    def _count_records(self, topic: str, partitions: int, acknowledged: int) -> None:
        """Every transaction left a record and a marker in each partition."""
        deadline = time.monotonic() + MARKERS_S
        while True:
            try:
                super()._count_records(topic, partitions, acknowledged)
                return
            except RoundFailed:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def blocks_of(self) -> None:
        """Everything that is compared."""
        words = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}
        for groups in self.groups:
            for width in WIDTHS:
                block = self.measure(
                    f"transaction{width}_{groups}",
                    FLUSH,
                    lambda topic, width=width: self._transactions(topic, width, **words),  # type: ignore[misc]
                    partitions=width,
                    max_outstanding=1,
                )
                figures = block["figures"]
                say(
                    f"  {block['name']:20} p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms, "
                    f"commit alone p50 {figures['commit_p50_ms']:.2f} ms"
                )


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


def run_plan(
    plan: Sequence[Planned], sizes: Sizes, parent: Path, heap: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run every session in turn; (what each measured, what failed)."""
    sessions: list[dict[str, Any]] = []
    failures: list[str] = []
    began = time.monotonic()
    for number, planned in enumerate(plan, 1):
        say(f"[{time.monotonic() - began:4.0f} s] session {number} of {len(plan)}: {planned}")
        session = TransactionsSession(planned.side, planned.kind, planned.groups, sizes, parent, heap)
        try:
            session.open()
            session.blocks_of()
        except (RoundFailed, TargetFailed) as error:
            failures.append(f"session {number} ({planned}): {error}")
            say(f"  FAILED: {error}\n{session.log_tail()}")
        finally:
            session.close()
        failures += [f"session {number}: {problem}" for problem in session.unproven()]
        sessions.append({**session.outcome(), "groups": planned.groups})
    say(f"[{time.monotonic() - began:4.0f} s] done")
    return sessions, failures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench transactions", description=__doc__)
    parser.add_argument("--vs", choices=["kafka", "self"], default="kafka")
    parser.add_argument("--subject", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--quick", action="store_true", help="short blocks and a short warm-up")
    parser.add_argument("--rounds", type=int, help="sessions of each kind")
    parser.add_argument("--seconds", type=float, help="length of each block")
    parser.add_argument("--heap", default=HEAP, help=f"of each Kafka node (default {HEAP})")
    parser.add_argument("--require", action="append", default=[], metavar="RATIO<=X", help="or 'goals'")
    parser.add_argument("--json", action="store_true", help="the comparison on stdout as JSON")
    parser.add_argument("--out", type=Path, default=LOCAL_RESULTS, help="directory for the kept result")
    parser.add_argument("--directory", type=Path, help="where data directories are made")
    return parser


def _command_line(options: argparse.Namespace) -> str:
    """The run's own words without paths."""
    words = ["python -m bench transactions", "--subject", options.subject, "--vs", options.vs]
    words += ["--quick"] if options.quick else []
    for name in ("rounds", "seconds"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value else []
    words += [word for text in options.require for word in ("--require", text)]
    words += ["--heap", options.heap] if options.heap != HEAP else []
    return " ".join(words)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    required: list[Goal] = []
    try:
        for text in options.require:
            required += parse_requirement(text, RATIOS, GOALS)
    except BadRequirement as error:
        parser.error(str(error))
    sizes = NODES_QUICK if options.quick else NODES_FULL
    sizes = replace(
        sizes, rounds=options.rounds or sizes.rounds, latency_s=options.seconds or sizes.latency_s
    )
    baseline = options.subject if options.vs == "self" else options.vs
    parent = options.directory or Path(tempfile.gettempdir())
    try:
        machine = machine_facts(parent)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        plan = plan_sessions(options.subject, baseline, sizes.rounds)
        sessions, failures = run_plan(plan, sizes, parent, options.heap)
    except (NoBlockDevice, ToolchainMissing) as error:
        say(f"cannot measure here: {error}")
        return EXIT_FAILED
    shown = GOALS if options.subject != baseline else ()
    result = {
        "format": 1,
        "kind": "transactions",
        "command": _command_line(options),
        "started": started,
        "subject": options.subject,
        "baseline": baseline,
        "heap": options.heap,
        "code": code_facts(),
        "machine": machine,
        "sizes": vars(sizes),
        "producer_properties": PRODUCER_PROPERTIES,
        "comparison": compare(sessions, required, shown, RATIOS),
        "failures": failures,
        "sessions": sessions,
    }
    return finish(result, options, frozenset(goal.ratio for goal in required))
