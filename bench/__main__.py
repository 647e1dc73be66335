"""`python -m bench`: whose command the first word is; the rows of one node are what is none.

Owns: what ends every command alike: a signal n (exit status 128 + n), and what is wrong with the machine,
which is told (1). Other exit statuses are the runner's (`bench.runner`), or a command's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from bench import runner
from bench.exit_status import EXIT_FAILED, by_signals, log_progress
from bench.kept import Unreadable
from bench.kinds.one_node import OneNode
from bench.machine.device import NoBlockDevice
from bench.sessions.jobs import FAILURES
from compat_tests.kafka_jars import ToolchainMissing
from lockstep.storage.types import StorageError

KINDS = {
    "headline": "bench.kinds.headline:Headline",
    "nodes3": "bench.kinds.nodes3:Nodes3",
    "transactions": "bench.kinds.transactions:Transactions",
    "atomic": "bench.kinds.transactions:Atomic",
    "secured": "bench.kinds.secured:Secured",
    "contention": "bench.kinds.contention:Contention",
    "feed": "bench.kinds.feed:Feed",
    "logstore": "bench.logstore.experiments:Logstore",
    "player": "bench.player.command:Player",
    "spark": "bench.spark.command:Spark",
    "profile": "bench.profile.split:Profile",
}
"""What the one runner runs, besides the rows of one node."""
TOOLS = {
    "full": "bench.full.command",
    "growth": "bench.growth.command",
    "micro": "bench.micro.command",
    "baselines": "bench.baselines.command",
}
"""Commands with a run of their own: their `main`."""
HELP = (
    "'python -m bench headline' is what the project is judged by, 'full' measures the whole grid "
    "of bench/workloads, 'baselines' says beside whom. Also: 'nodes3' compares three nodes, "
    "'transactions' their transactions, 'atomic' atomic appends with those, 'secured' TLS; 'contention' and "
    "'feed' measure locks and transactions over them; 'logstore' repeats seed 001, 'player' seed 000; "
    "'spark' reads and writes with Spark; 'growth', 'profile' and 'micro' look at Lockstep alone; "
    "'python -m bench.page RESULT.json ...' prints docs/benchmarks.md, 'make bench-page' writes it."
)

UNUSABLE = (OSError, StorageError, NoBlockDevice, ToolchainMissing, Unreadable, *FAILURES)
"""What is wrong with the machine, its disk or what lies on it, and what a command without sessions leaves to
be told: no fault of the benchmark's."""


def command_of(word: str) -> Callable[[Sequence[str]], int]:
    """The command that a first word names. KeyError."""
    if word in TOOLS:
        command: Callable[[Sequence[str]], int] = import_module(TOOLS[word]).main
        return command
    module, _, name = KINDS[word].partition(":")
    return partial(runner.main, getattr(import_module(module), name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the command line; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with by_signals():
        try:
            if words and words[0] in (*KINDS, *TOOLS):
                return command_of(words[0])(words[1:])
            return runner.main(OneNode, words, others=(*KINDS, *TOOLS), epilog=HELP)
        except UNUSABLE as error:
            log_progress(f"FAILED: {error}")
            return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
