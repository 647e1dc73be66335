"""`python -m bench contention`: transactions of 16 clients on few or many hot accounts.

Owns: the client processes and their window, and the blocks: one node that flushes, one topic of one partition
for each number of hot accounts. Afterwards the log is read once more: every success is in it once, and no
update was lost. A lost update or a client that starved (`bench.figures.contention`) fails the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from bench import argument_types
from bench.exit_status import log_progress
from bench.figures.contention import LEAST_SUCCESSES, point, starvation, table
from bench.figures.ratios import block_medians
from bench.load.contention import balances
from bench.runner import RUN, Measurement, Options
from bench.sessions.children import READY_TIMEOUT_S, Child
from bench.sessions.jobs import Block, WrongCount
from bench.sessions.session import LockstepSession
from bench.settings import FLUSH, PRODUCERS

HOT_ACCOUNTS = (1, 3, 10, 30, 100, 300, 1000)
START_S = 0.2
"""From the start message to the first transaction, so that all clients have received it."""


def run_clients(clients: Sequence[Child], job: Block, warmup_s: float, seconds: float) -> list[Block]:
    """The job in all of them at once; their results. RoundFailed."""
    for number, child in enumerate(clients):
        child.send({**job, "number": number})
    for child in clients:
        child.next_response()
    opens_ns = time.monotonic_ns() + int((START_S + warmup_s) * 1e9)
    for child in clients:
        child.send({"opens_ns": opens_ns, "closes_ns": opens_ns + int(seconds * 1e9)})
    return [child.next_response(warmup_s + seconds + READY_TIMEOUT_S) for child in clients]


class ContentionSession(LockstepSession):
    """One round: every number of hot accounts once."""

    def measure_accounts(self, clients: Sequence[Child], accounts: int) -> None:
        """One block. RoundFailed."""

        def work(topic: str) -> Block:
            job = {"bootstrap": self.target.bootstrap, "topic": topic, "accounts": accounts}
            found = run_clients(clients, job, self.sizes.latency_warmup_s, self.sizes.latency_s)
            total = sum(each["total"] for each in found)
            return {**point(found, self.sizes.latency_s), "total_records": total, "writes": total}

        block = self.measure(f"hot{accounts}", FLUSH, work, max_outstanding=len(clients))
        figures = block["figures"]
        stored = asyncio.run(balances(self.target.bootstrap, block["topic"]))
        if stored.lost or sum(stored.balances.values()) != figures["total_records"]:
            self.blocks.remove(block)
            raise WrongCount(f"{stored.lost} updates were lost in {block['topic']}")
        log_progress(
            f"  hot accounts {accounts:5}: {figures['goodput_per_s']:,.0f} transactions/s, "
            f"{figures['refusals_per_success']:.2f} refusals each, least share {figures['least_share']:.2f}, "
            f"longest wait {figures['longest_wait_s']:.2f} s"
        )


class Contention(Measurement[tuple[int, ...], ContentionSession]):
    """Transactions of many clients on few or many hot accounts."""

    name = "contention"
    options: ClassVar[Options] = {
        **RUN,
        "--clients": {"type": argument_types.count, "default": PRODUCERS},
        "--accounts": {"type": int, "choices": HOT_ACCOUNTS, "action": "append", "help": "default: all"},
    }

    def plan(self) -> Sequence[tuple[int, ...]]:
        accounts = tuple(each for each in HOT_ACCOUNTS if each in (self.chosen.accounts or HOT_ACCOUNTS))
        return [accounts if number % 2 == 0 else accounts[::-1] for number in range(self.sizes.rounds)]

    def session(self, planned: tuple[int, ...]) -> ContentionSession:
        return ContentionSession(self.sizes, self.parent, topic={"lockstep.locks": "true"})

    def measure(self, planned: tuple[int, ...], session: ContentionSession) -> None:
        session.start()
        with ExitStack() as stack:
            clients = [
                stack.enter_context(Child("bench.load.contention")) for _ in range(self.chosen.clients)
            ]
            for accounts in planned:
                session.measure_accounts(clients, accounts)

    def figures(self, measured: Any) -> dict[str, Any]:
        rows, problems = evaluate(measured, self.chosen.quick)
        return {"rows": rows, "sessions": measured, "failures": problems}

    def table(self, result: dict[str, Any]) -> str:
        return table(result)


def evaluate(sessions: list[Block], quick: bool = False) -> tuple[list[Block], list[str]]:
    """A row for each number of hot accounts (medians; the worst of shares and waits), and who starved.

    Blocks of a quick run that are too short for a verdict are not checked.
    """
    rows, problems = [], []
    for accounts in HOT_ACCOUNTS:
        name = f"hot{accounts}"
        blocks = [block for each in sessions for block in each["blocks"] if block["name"] == name]
        found = [block["figures"] for block in blocks if block["proven"]]
        if found:
            worst = {
                "least_share": min(each["least_share"] for each in found),
                "longest_wait_s": max(each["longest_wait_s"] for each in found),
            }
            rows.append({"accounts": accounts, **block_medians(sessions, name), **worst})
        checked = [each for each in found if not quick or each["successes_per_client"] >= LEAST_SUCCESSES]
        if len(checked) < len(found):
            log_progress(f"  {accounts} hot accounts: too few successes to say that none starved")
        problems += [
            f"{accounts} hot accounts: {problem}" for each in checked if (problem := starvation(each))
        ]
    return rows, problems
