"""`python -m bench contention`: transactions of 16 clients on few or many hot accounts.

Owns: the command line, the client processes and their window, and the blocks: one node that flushes, one
topic of one partition for each number of hot accounts. Afterwards the log is read once more: every success
is in it once, and no update was lost. The kept JSON has all figures; `--plot RESULT.json` draws them again
without measuring. Exit status: 0, or 1 when a round failed, an update was lost, or a client starved
(`bench.contention.figures`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import argument_types
from bench.contention.client import balances
from bench.contention.figures import LEAST_SUCCESSES, point, starvation, table
from bench.figures import pictures
from bench.figures.ratios import block_medians
from bench.progress import log_progress
from bench.running import alone, comparison
from bench.sessions.failures import RoundFailed, WrongCount
from bench.sessions.jobs import Block
from bench.sessions.session import LockstepSession
from bench.settings import FLUSH, FULL, PRODUCERS, QUICK, Sizes
from compat_tests.targets import ROOT

CLIENTS = PRODUCERS
HOT_ACCOUNTS = (1, 3, 10, 30, 100, 300, 1000)
PLOTS = "bench.contention.plots"
START_S = 0.2
"""From the word to the first transaction, so that all clients have heard it."""


class Clients:
    """The client processes; each does one job after another."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "bench.contention.client"]
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def run(self, job: dict[str, Any], warmup_s: float, seconds: float) -> list[dict[str, Any]]:
        """The job in all of them at once; their results. RoundFailed."""
        for number, child in enumerate(self._children):
            _tell(child, {**job, "number": number})
        for child in self._children:
            _response_of(child)
        opens_ns = time.monotonic_ns() + int((START_S + warmup_s) * 1e9)
        for child in self._children:
            _tell(child, [opens_ns, opens_ns + int(seconds * 1e9)])
        return [_response_of(child) for child in self._children]


def _tell(child: subprocess.Popen[str], words: object) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(words) + "\n")
        child.stdin.flush()
    except OSError as error:
        raise RoundFailed(f"a client ended: {error}") from error


def _response_of(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    line = child.stdout.readline()
    answer = json.loads(line) if line else {"error": "a client ended"}
    if "error" in answer:
        raise RoundFailed(str(answer["error"]))
    return answer


class ContentionSession(LockstepSession):
    """One round: every number of hot accounts once."""

    def _topic_config(self, policy: str) -> dict[str, str]:
        return {"lockstep.locks": "true"}

    def contended(self, clients: Clients, count: int, accounts: int) -> None:
        """One block. RoundFailed."""

        def work(topic: str) -> Block:
            job = {"bootstrap": self.target.bootstrap, "topic": topic, "accounts": accounts}
            found = clients.run(job, self.sizes.latency_warmup_s, self.sizes.latency_s)
            total = sum(each["total"] for each in found)
            return {**point(found, self.sizes.latency_s), "total_records": total, "writes": total}

        block = self.measure(f"hot{accounts}", FLUSH, work, max_outstanding=count)
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


def evaluate(sessions: list[dict[str, Any]], quick: bool = False) -> tuple[list[alone.Row], list[str]]:
    """A row for each number of hot accounts (medians; the worst of shares and waits), and who starved.

    Blocks of a quick run that are too short to tell are not judged.
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
        told = [each for each in found if not quick or each["successes_per_client"] >= LEAST_SUCCESSES]
        if len(told) < len(found):
            log_progress(f"  {accounts} hot accounts: too few successes to say that none starved")
        problems += [f"{accounts} hot accounts: {said}" for each in told if (said := starvation(each))]
    return rows, problems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench contention", description=__doc__)
    comparison.add_run_options(parser, quick="short blocks")
    parser.add_argument("--clients", type=argument_types.count, default=CLIENTS)
    parser.add_argument(
        "--accounts", type=int, choices=HOT_ACCOUNTS, action="append", help="default: all of these"
    )
    pictures.add_options(parser)
    return parser


def _run(options: argparse.Namespace, sizes: Sizes, parent: Path) -> comparison.Outcomes:
    wanted = tuple(each for each in HOT_ACCOUNTS if each in (options.accounts or HOT_ACCOUNTS))
    plan = [wanted if number % 2 == 0 else wanted[::-1] for number in range(sizes.rounds)]

    def measure(planned: tuple[int, ...], session: ContentionSession) -> None:
        session.start()
        with Clients(options.clients) as clients:
            for accounts in planned:
                session.contended(clients, options.clients, accounts)

    return comparison.run_sessions(plan, lambda _: ContentionSession(sizes, parent), measure)


def main(arguments: Sequence[str]) -> int:
    """Measure and draw; the exit status."""
    options = _parser().parse_args(arguments)
    if options.plot:
        pictures.draw(PLOTS, options, options.plot)
        return 0
    sizes = comparison.apply_sizes(QUICK if options.quick else FULL, options)
    accounts = [word for each in options.accounts or () for word in ("--accounts", str(each))]
    status, path = alone.run_alone(
        "contention",
        ["python -m bench contention", "--clients", str(options.clients), *accounts],
        options,
        sizes,
        lambda parent: _run(options, sizes, parent),
        lambda sessions: evaluate(sessions, options.quick),
        table,
    )
    if path is not None:
        pictures.draw(PLOTS, options, path)
    return status
