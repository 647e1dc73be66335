"""`python -m bench`: whose command the first word is; the rows of one node are what is none (`one_node`).

Owns: what ends every command alike: a signal n (exit status 128 + n), and what is wrong with the machine,
which is told (1). Other exit statuses are the commands' own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.baselines import command as baselines
from bench.compaction import command as compaction
from bench.contention import command as contention
from bench.exit_status import EXIT_FAILED, by_signals
from bench.feed import command as feed
from bench.full import command as full
from bench.growth import command as growth
from bench.headline import command as headline
from bench.kept import Unreadable
from bench.locks import command as locks
from bench.logstore import command as logstore
from bench.machine.device import NoBlockDevice
from bench.micro import command as micro
from bench.nodes3 import command as nodes3
from bench.one_node import command as one_node
from bench.player import command as player
from bench.profile import command as profile
from bench.progress import log_progress
from bench.sessions.failures import FAILURES
from bench.spark import command as spark
from bench.transactions import atomic
from bench.transactions import command as transactions
from compat_tests.kafka_jars import ToolchainMissing
from storage.types import StorageError

TOOLS = {
    "atomic": atomic.main,
    "baselines": baselines.main,
    "compaction": compaction.main,
    "contention": contention.main,
    "feed": feed.main,
    "full": full.main,
    "growth": growth.main,
    "headline": headline.main,
    "locks": locks.main,
    "logstore": logstore.main,
    "nodes3": nodes3.main,
    "transactions": transactions.main,
    "player": player.main,
    "profile": profile.main,
    "spark": spark.main,
    "micro": micro.main,
}
"""Commands with words of their own."""

TOLD = (
    "'python -m bench headline' is what the project is judged by, 'full' measures the whole grid "
    "of bench/workloads, 'baselines' says beside whom. Also: 'nodes3' compares three nodes, "
    "'transactions' their transactions, 'atomic' atomic appends with those; 'locks', 'contention' and "
    "'feed' measure locks and transactions over them; 'logstore' repeats seed 001, 'player' seed 000; "
    "'spark' reads and writes with Spark; 'compaction', 'growth', 'profile' and 'micro' look at Lockstep "
    "alone; 'python -m bench.page RESULT.json ...' prints docs/benchmarks.md, 'make bench-page' writes it."
)
"""What `--help` says of them."""

UNUSABLE = (OSError, StorageError, NoBlockDevice, ToolchainMissing, Unreadable)
"""What is wrong with the machine, its disk or what lies on it: told, and no fault of the benchmark's."""
TOLD_OF = (*UNUSABLE, *FAILURES)
"""And what a command without sessions leaves to be told."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with by_signals():
        try:
            if words and words[0] in TOOLS:
                return TOOLS[words[0]](words[1:])
            return one_node.main(words, TOOLS, TOLD)
        except TOLD_OF as error:
            log_progress(f"FAILED: {error}")
            return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
