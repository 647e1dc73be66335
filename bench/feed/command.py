"""`python -m bench feed`: what a feed's reader pays for bodies that it does not look at.

Owns: the command line, and the blocks: one node, a topic of transactions with bodies of 0 bytes to 10 KB for
each, read from the beginning to the end by what `TransactionClient` reads with. What a body costs above the
empty one, in the client and in the broker, is the most that a Fetch without bodies could save; beside it
stands what taking a body out of a batch takes, which the broker would have to do for each. The readers are
as fast as they can be: one that waits for the next transaction pays more for each read, and as much for
bodies. Exit status: 0, or 1 when a round failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import argument_types
from bench.feed.figures import table
from bench.figures.ratios import block_medians
from bench.machine.process import cpu_seconds
from bench.progress import log_progress
from bench.running import alone, comparison
from bench.sessions.jobs import Block
from bench.sessions.session import LockstepSession
from bench.settings import FLUSH, FULL, QUICK, Sizes

BODY_BYTES = (0, 100, 1_000, 10_000)
TRANSACTIONS = 10_000
"""In each topic."""


class FeedSession(LockstepSession):
    """One round: a topic for each size of body, filled, then read."""

    def _topic_config(self, policy: str) -> dict[str, str]:
        return {"lockstep.locks": "true"}

    def blocks_of(self, sizes: Sequence[int], transactions: int) -> None:
        """All of them are filled first, so that no reader comes right behind a writer."""
        filled = [(body_bytes, *self._fill(body_bytes, transactions)) for body_bytes in sizes]
        for body_bytes, topic, facts in filled:
            self._read(body_bytes, topic, transactions, facts)

    def _fill(self, body_bytes: int, transactions: int) -> tuple[str, Block]:
        topic = self.topic(FLUSH)
        words = {"topic": topic, "body_bytes": body_bytes, "transactions": transactions}
        facts = self.job("fill_feed", bootstrap=self.target.bootstrap, **words)
        self.count_records(topic, 1, transactions)
        return topic, facts

    def _read(self, body_bytes: int, topic: str, transactions: int, facts: Block) -> None:
        def work() -> Block:
            before = self._sum(cpu_seconds)
            window = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}
            words = {"bootstrap": self.target.bootstrap, "topic": topic, "transactions": transactions}
            result = self.job("read_feed", **words, **window)
            used_s = self._sum(cpu_seconds) - before
            broker_us = used_s / result["all_transactions"] * 1e6
            return {**result, **facts, "broker_us": broker_us, "writes": 0}

        block = self.observe(f"feed{body_bytes}", FLUSH, work, max_outstanding=1)
        figures = block["figures"]
        log_progress(
            f"  bodies of {body_bytes:6} bytes: {figures['transactions_per_s']:,.0f} transactions/s, client "
            f"{figures['client_us']:.1f} us, broker {figures['broker_us']:.1f} us each"
        )


def evaluate(sessions: list[dict[str, Any]]) -> tuple[list[alone.Row], list[str]]:
    """A row for each size; `above_us` is what client and broker spend more than for an empty body."""
    rows: list[alone.Row] = []
    for body_bytes in BODY_BYTES:
        found = block_medians(sessions, f"feed{body_bytes}")
        if found:
            both_us = found["client_us"] + found["broker_us"]
            above_us = both_us - rows[0]["both_us"] if rows else 0.0
            rows.append({"body_bytes": body_bytes, **found, "both_us": both_us, "above_us": above_us})
    if not rows or rows[0]["body_bytes"]:
        return [], ["empty bodies were not measured, so there is nothing to compare with"]
    return rows, []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench feed", description=__doc__)
    comparison.add_run_options(parser, quick="short blocks")
    parser.add_argument(
        "--transactions", type=argument_types.count, default=TRANSACTIONS, help="in each topic"
    )
    return parser


def _run(options: argparse.Namespace, sizes: Sizes, parent: Path) -> comparison.Outcomes:
    plan = [BODY_BYTES if number % 2 == 0 else BODY_BYTES[::-1] for number in range(sizes.rounds)]

    def measure(planned: tuple[int, ...], session: FeedSession) -> None:
        session.start()
        session.blocks_of(planned, options.transactions)

    return comparison.run_sessions(plan, lambda _: FeedSession(sizes, parent), measure)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    options = _parser().parse_args(arguments)
    sizes = comparison.apply_sizes(QUICK if options.quick else FULL, options)
    status, _ = alone.run_alone(
        "feed",
        ["python -m bench feed", "--transactions", str(options.transactions)],
        options,
        sizes,
        lambda parent: _run(options, sizes, parent),
        evaluate,
        table,
    )
    return status
