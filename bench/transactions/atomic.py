"""`python -m bench atomic`: an atomic append against Apache Kafka's transaction over the same, three nodes.

Owns: the command line, what differs from `python -m bench transactions` (the append, and that a topic's
partitions are in one log group), and the ratios. One record goes to each of 10 partitions: in Lockstep with
one Produce request that is taken as a whole (docs/locks.md), in Kafka with a transaction. What is timed is
everything from making the records to the answer that all of them are committed, through a client on both
sides: what Lockstep's transaction client appends with, and confluent-kafka. The same batches without that
client are blocks of their own ("bare"), and in no ratio. Both sides flush. Exit status as of
`python -m bench`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.figures.ratios import Goal, Ratio
from bench.sessions.commits import count_commits
from bench.sessions.jobs import Block
from bench.settings import FLUSH, Sizes
from bench.transactions.command import ONE, SPREAD, TransactionsSession, run_comparison

WIDTH = 10
"""Partitions of an append, and of a transaction."""

RATIOS = {
    ratio.name: ratio
    for groups, words in ((ONE, "1 group"), (SPREAD, "default groups"))
    for kind in ("p50", "p99")
    for ratio in [
        Ratio(
            f"atomic.{kind}.{groups}",
            f"{words}: atomic append over {WIDTH} partitions, {kind}",
            "ms",
            f"atomic{WIDTH}_{groups}.{kind}_ms",
            (FLUSH, FLUSH),
        )
    ]
}
GOALS = (Goal(f"atomic.p50.{ONE}", "<=", 0.05), Goal(f"atomic.p50.{SPREAD}", "<=", 0.05))
"""What the project wants to show for three nodes against three warmed-up Apache Kafka 4.4.0 nodes."""


class AtomicSession(TransactionsSession):
    """Like the sessions of transactions; the partitions of a Lockstep topic are in one log group, of one or
    of several."""

    block = "atomic"
    widths = (WIDTH,)

    def __init__(
        self, side: str, kind: str, groups: tuple[str, ...], sizes: Sizes, parent: Path, heap: str
    ) -> None:
        super().__init__(side, kind, groups, sizes, parent, heap)
        self.shapes = (1,)

    def _topic_config(self, policy: str) -> dict[str, str]:
        if self.kind == "kafka":
            return super()._topic_config(policy)
        return {"lockstep.group": "1", "lockstep.locks": "true"}

    def _transactions(self, topic: str, width: int, **words: float) -> Block:
        if self.kind == "kafka":
            return super()._transactions(topic, width, **words)
        return self._appends(topic, width, bare=False, **words)

    def blocks_of(self) -> None:
        """Like the sessions of transactions; in Lockstep without its client, too."""
        super().blocks_of()
        if self.kind == "lockstep":
            for groups in self.groups:
                self._block(f"bare{WIDTH}_{groups}", WIDTH, partial(self._appends, bare=True))

    def run(self) -> None:
        """Like the sessions of transactions; how many entries they are is counted at the end."""
        super().run()
        count_commits(self)

    def _appends(self, topic: str, width: int, *, bare: bool, **words: float) -> Block:
        where = {"bootstrap": self.target.bootstrap, "topic": topic, "partitions": width}
        result = self.job("atomic_appends", bare=bare, **where, **words)
        return {**result, "writes": result["total_transactions"]}


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    return run_comparison("atomic", __doc__, arguments, AtomicSession, RATIOS, GOALS)
