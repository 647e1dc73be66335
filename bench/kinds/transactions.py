"""`python -m bench transactions` and `atomic`: several partitions written together, three nodes that flush.

Owns: the sessions (Lockstep once with one data group and once with its default spread, Apache Kafka between
them), the blocks and their ratios. `transactions`: a real client begins a transaction, writes a record to
each of 1 or 10 partitions, and commits it; what is timed is all of that, and the commit alone beside it.
`atomic`: Lockstep takes one Produce request for 10 partitions as a whole (docs/locks.md), through what its
transaction client appends with; Kafka runs a transaction over the same. The same batches without that client
are blocks of their own ("bare"), and in no ratio. Kafka flushes every append of every topic, its internal
ones included, as Lockstep does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from bench.exit_status import log_progress
from bench.figures.ratios import BASELINE, SUBJECT, Goal, Ratio
from bench.runner import COMPARED, HEAP, Comparison, Options, mirror_rounds
from bench.sessions.cluster import NodesSession
from bench.sessions.commits import count_commits
from bench.sessions.jobs import Block, RoundFailed
from bench.sessions.setup import GROUPS, Setup
from bench.settings import FLUSH, NODES, NODES_FULL, NODES_QUICK

ONE, SPREAD = "one", "spread"
"""Lockstep with lockstep.data.groups=1, and with its default."""
SPREADS = {ONE: "1 group", SPREAD: "default groups"}
WIDTHS = (1, 10)
"""Partitions of a transaction."""
ATOMIC_WIDTH = WARM_WIDTH = 10
MARKERS_S = 10.0
"""A committed transaction's markers may still be on their way."""


class TransactionsSession(NodesSession):
    """Three nodes of one side that flush; `names`: ONE or SPREAD, or both where it makes no difference."""

    names: tuple[str, ...] = ()
    block = "transaction"
    widths: tuple[int, ...] = WIDTHS

    def _warm_topics(self) -> list[str]:
        return [self.topic(FLUSH, WARM_WIDTH)]

    def _warm_slice(self, topic: str, producers: int) -> int:
        return int(self._work(topic, WARM_WIDTH, seconds=1.5, warmup_s=0.0)["writes"])

    def _work(self, topic: str, width: int, **words: float) -> Block:
        where = {"bootstrap": self.target.bootstrap, "topic": topic, "partitions": width}
        result = self.job("client_transactions", **where, **words)
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

    def blocks_of(self) -> None:
        """Everything that is compared."""
        for groups in self.names:
            for width in self.widths:
                self._block(f"{self.block}{width}_{groups}", width, self._work)

    def _block(self, name: str, width: int, work: Callable[..., Block]) -> None:
        """Args: work: takes what `_work` takes."""
        window = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}
        block = self.measure(
            name, FLUSH, lambda topic: work(topic, width, **window), partitions=width, max_outstanding=1
        )
        figures = block["figures"]
        words = f"p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms"
        if "commit_p50_ms" in figures:
            words += f", commit alone p50 {figures['commit_p50_ms']:.2f} ms"
        log_progress(f"  {name:20} {words}")


class AtomicSession(TransactionsSession):
    """The partitions of a Lockstep topic are in one log group, of one or of several."""

    block = "atomic"
    widths = (ATOMIC_WIDTH,)

    def _work(self, topic: str, width: int, **words: float) -> Block:
        if self.kind == "kafka":
            return super()._work(topic, width, **words)
        return self._appends(topic, width, bare=False, **words)

    def _appends(self, topic: str, width: int, *, bare: bool, **words: float) -> Block:
        where = {"bootstrap": self.target.bootstrap, "topic": topic, "partitions": width}
        result = self.job("atomic_appends", bare=bare, **where, **words)
        return {**result, "writes": result["total_transactions"]}

    def blocks_of(self) -> None:
        """In Lockstep without its client, too."""
        super().blocks_of()
        if self.kind == "lockstep":
            for groups in self.names:
                self._block(f"bare{ATOMIC_WIDTH}_{groups}", ATOMIC_WIDTH, partial(self._appends, bare=True))


@dataclass(frozen=True)
class Planned:
    """One session to come."""

    side: str
    kind: str
    groups: tuple[str, ...]

    def __str__(self) -> str:
        return f"{NODES} x {self.kind}, {' and '.join(self.groups)}"


def _sessions_of(side: str, kind: str) -> list[Planned]:
    if kind == "kafka":
        return [Planned(side, kind, (ONE, SPREAD))]
    return [Planned(side, kind, (groups,)) for groups in SPREADS]


class Transactions(Comparison[Planned, TransactionsSession]):
    """Short transactions of a real client, three Lockstep nodes against three Kafka nodes that flush."""

    name = "transactions"
    options: ClassVar[Options] = {**COMPARED, **HEAP}
    quick, whole = NODES_QUICK, NODES_FULL
    made = TransactionsSession
    topic: ClassVar[Mapping[str, str]] = {}
    """Of Lockstep's topics."""
    ratios: ClassVar[Mapping[str, Ratio]] = {
        ratio.name: ratio
        for groups, words in SPREADS.items()
        for width in WIDTHS
        for kind in ("p50", "p99")
        for ratio in [
            Ratio(
                f"transactions.{kind}.{width}.{groups}",
                f"{words}: transaction over {width} partition{'s'[: width > 1]}, begin to committed, {kind}",
                "ms",
                f"transaction{width}_{groups}.{kind}_ms",
                (FLUSH, FLUSH),
            )
        ]
    }
    goals = tuple(
        Goal(f"transactions.p50.{width}.{groups}", "<=", bound)
        for groups, bound in ((ONE, 0.1), (SPREAD, 0.25))
        for width in WIDTHS
    )

    def plan(self) -> Sequence[Planned]:
        """Kafka's session is between Lockstep's two, so that a drift hits both sides."""
        first, *rest = _sessions_of(SUBJECT, self.chosen.subject)
        return mirror_rounds([first, *_sessions_of(BASELINE, self.baseline), *rest], self.sizes.rounds)

    def session(self, planned: Planned) -> TransactionsSession:
        settings = {GROUPS: "1"} if planned.groups == (ONE,) else {}
        setup = Setup(planned.kind, settings=settings, topic=self.topic)
        if planned.kind == "kafka":
            settings = {"log.flush.interval.messages": "1"}
            setup = Setup(planned.kind, settings=settings, heap=self.chosen.heap)
        session = self.made(planned.side, setup, self.sizes, self.parent)
        session.names = planned.groups
        return session

    def measure(self, planned: Planned, session: TransactionsSession) -> None:
        session.open()
        session.blocks_of()


class Atomic(Transactions):
    """An atomic append against Apache Kafka's transaction over the same 10 partitions, three nodes."""

    name = "atomic"
    made = AtomicSession
    topic: ClassVar[Mapping[str, str]] = {"lockstep.group": "1", "lockstep.locks": "true"}
    ratios: ClassVar[Mapping[str, Ratio]] = {
        ratio.name: ratio
        for groups, words in SPREADS.items()
        for kind in ("p50", "p99")
        for ratio in [
            Ratio(
                f"atomic.{kind}.{groups}",
                f"{words}: atomic append over {ATOMIC_WIDTH} partitions, {kind}",
                "ms",
                f"atomic{ATOMIC_WIDTH}_{groups}.{kind}_ms",
                (FLUSH, FLUSH),
            )
        ]
    }
    goals = (Goal(f"atomic.p50.{ONE}", "<=", 0.05), Goal(f"atomic.p50.{SPREAD}", "<=", 0.05))

    def measure(self, planned: Planned, session: TransactionsSession) -> None:
        """The log entries that the appends are come last: counting them ends the nodes."""
        super().measure(planned, session)
        count_commits(session)
