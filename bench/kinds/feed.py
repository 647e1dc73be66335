"""`python -m bench feed`: what a feed's reader pays for bodies that it does not look at.

Owns: the blocks: one node, a topic of transactions with bodies of 0 bytes to 10 KB for each, read from the
beginning to the end by what `TransactionClient` reads with (`bench.load.feed`). What a body costs above the
empty one, in the client and in the broker, is the most that a Fetch without bodies could save; beside it
stands what taking a body out of a batch takes, which the broker would have to do for each. The readers are
as fast as they can be: one that waits for the next transaction pays more for each read, and as much for
bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from bench import argument_types
from bench.exit_status import log_progress
from bench.figures.ratios import block_medians
from bench.figures.tables import text_table
from bench.machine.process import cpu_seconds
from bench.runner import RUN, Measurement, Options
from bench.sessions.jobs import Block
from bench.sessions.session import LockstepSession
from bench.settings import FLUSH

BODY_BYTES = (0, 100, 1_000, 10_000)


class FeedSession(LockstepSession):
    """One round: a topic for each size of body, filled, then read."""

    def fill(self, body_bytes: int, transactions: int) -> tuple[str, Block]:
        """A topic, and the load generator's result for it."""
        topic = self.topic(FLUSH)
        words = {"topic": topic, "body_bytes": body_bytes, "transactions": transactions}
        facts = self.job("fill_feed", bootstrap=self.target.bootstrap, **words)
        self.count_records(topic, 1, transactions)
        return topic, facts

    def read(self, body_bytes: int, topic: str, transactions: int, facts: Block) -> None:
        """One block."""

        def work() -> Block:
            before = self._sum(cpu_seconds)
            window = {"seconds": self.sizes.latency_s, "warmup_s": self.sizes.latency_warmup_s}
            words = {"bootstrap": self.target.bootstrap, "topic": topic, "transactions": transactions}
            result = self.job("read_feed", **words, **window)
            broker_us = (self._sum(cpu_seconds) - before) / result["all_transactions"] * 1e6
            return {**result, **facts, "broker_us": broker_us, "writes": 0}

        figures = self.observe(f"feed{body_bytes}", FLUSH, work, max_outstanding=1)["figures"]
        log_progress(
            f"  bodies of {body_bytes:6} bytes: {figures['transactions_per_s']:,.0f} transactions/s, client "
            f"{figures['client_us']:.1f} us, broker {figures['broker_us']:.1f} us each"
        )


class Feed(Measurement[tuple[int, ...], FeedSession]):
    """The price of bodies for a feed's reader that does not look at them."""

    name = "feed"
    options: ClassVar[Options] = {
        **RUN,
        "--transactions": {"type": argument_types.count, "default": 10_000, "help": "in each topic"},
    }

    def plan(self) -> Sequence[tuple[int, ...]]:
        return [BODY_BYTES if number % 2 == 0 else BODY_BYTES[::-1] for number in range(self.sizes.rounds)]

    def session(self, planned: tuple[int, ...]) -> FeedSession:
        return FeedSession(self.sizes, self.parent, topic={"lockstep.locks": "true"})

    def measure(self, planned: tuple[int, ...], session: FeedSession) -> None:
        """All are filled first, so that no reader comes right behind a writer."""
        session.start()
        count = self.chosen.transactions
        filled = [(body_bytes, *session.fill(body_bytes, count)) for body_bytes in planned]
        for body_bytes, topic, facts in filled:
            session.read(body_bytes, topic, count, facts)

    def figures(self, measured: Any) -> dict[str, Any]:
        """A row for each size; `above_us` is what client and broker spend more than for an empty body."""
        rows: list[dict[str, Any]] = []
        for body_bytes in BODY_BYTES:
            found = block_medians(measured, f"feed{body_bytes}")
            if found:
                both_us = found["client_us"] + found["broker_us"]
                above_us = both_us - rows[0]["both_us"] if rows else 0.0
                rows.append({"body_bytes": body_bytes, **found, "both_us": both_us, "above_us": above_us})
        if not rows or rows[0]["body_bytes"]:
            failure = "empty bodies were not measured, so there is nothing to compare with"
            return {"rows": [], "sessions": measured, "failures": [failure]}
        return {"rows": rows, "sessions": measured}

    def table(self, result: dict[str, Any]) -> str:
        return table(result)


def table(result: dict[str, Any], style: str = "simple") -> str:
    """A row for each size of body."""
    heads = ["body bytes", "bytes on the wire", "transactions/s", "client CPU us", "broker CPU us"]
    heads += ["both, above an empty body, us", "taking the body out, us"]
    rows = [
        [
            f"{row['body_bytes']:,}",
            f"{row['batch_bytes']:,.0f}",
            f"{row['transactions_per_s']:,.0f}",
            *(f"{row[name]:.1f}" for name in ("client_us", "broker_us")),
            *(f"{row[name]:.1f}" if row["body_bytes"] else "" for name in ("above_us", "project_us")),
        ]
        for row in result["rows"]
    ]
    return text_table(rows, heads, style)
