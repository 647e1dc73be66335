"""One client of `python -m bench contention`, in a process of its own.

Takes jobs from standard input, one JSON object a line: a topic and how many hot accounts it has. It reports
"ready" once it has caught up, waits for a window, works until that closes, and prints the counts. A
transaction reads one account's balance and writes it again, one higher, under a write lock; the next one
begins when it is applied here.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from array import array
from typing import Any

from lockstep.transactions import Application, Committed, Draft, Refusal, Transaction, TransactionClient, lock

TRANSACTION_TIMEOUT_S = 60.0
"""A client without a success for so long has starved, which it reports."""


class Accounts(Application):
    """Balances by account. `lost`: updates that did not build on what was there before them."""

    def __init__(self) -> None:
        self.balances: dict[int, int] = {}
        self.lost = 0
        self._mark = -1

    def high_water_mark(self, partition: int) -> int:
        return self._mark

    def apply(self, committed: Committed) -> None:
        account, balance = map(int, (committed.value or b"").split())
        self.lost += balance != self.balances.get(account, 0) + 1
        self.balances[account] = balance
        self._mark = committed.offset


class Deposit(Transaction):
    """One more on an account."""

    def __init__(self, accounts: Accounts, account: int, window: Window) -> None:
        self._accounts = accounts
        self._account = account
        self._window = window

    def execute(self, draft: Draft) -> None:
        draft.write_lock(lock("account", self._account))
        balance = self._accounts.balances.get(self._account, 0)
        draft.add(b"%d %d" % (self._account, balance + 1))

    def on_refusal(self, refusal: Refusal) -> None:
        self._window.record_conflict(time.monotonic_ns())


class Window:
    """The counts between two moments (monotonic ns, which all processes of the machine share)."""

    def __init__(self, opens_ns: int, closes_ns: int) -> None:
        self.opens_ns = opens_ns
        self.closes_ns = closes_ns
        self.total = 0
        """Successes, those outside of the window included."""
        self._successes = self._refusals = 0
        self._latencies = array("q")
        self._last_ns = opens_ns
        self._longest_ns = 0

    def record_success(self, begun_ns: int, done_ns: int) -> None:
        self.total += 1
        if self.opens_ns <= done_ns <= self.closes_ns:
            self._successes += 1
            self._latencies.append(done_ns - begun_ns)
            self._waited_until(done_ns)

    def record_conflict(self, at_ns: int) -> None:
        self._refusals += self.opens_ns <= at_ns <= self.closes_ns

    def result(self) -> dict[str, Any]:
        self._waited_until(self.closes_ns)  # a client without any success has waited all the time
        return {
            "total": self.total,
            "successes": self._successes,
            "refusals": self._refusals,
            "longest_wait_s": self._longest_ns / 1e9,
            "latencies_ns": self._latencies.tolist(),
        }

    def _waited_until(self, now_ns: int) -> None:
        self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns


async def work(job: dict[str, Any]) -> dict[str, Any]:
    """One job, from its topic to its result; asks on standard output and input when to begin."""
    accounts, rng = Accounts(), random.Random(job["number"])
    async with TransactionClient(job["bootstrap"], job["topic"], accounts) as client:
        await client.caught_up()
        print(json.dumps({"ready": True}), flush=True)
        window = Window(**json.loads(await asyncio.to_thread(sys.stdin.readline)))
        while (begun_ns := time.monotonic_ns()) < window.closes_ns:
            deposit = Deposit(accounts, rng.randrange(job["accounts"]), window)
            await client.execute(deposit, timeout_s=TRANSACTION_TIMEOUT_S)
            window.record_success(begun_ns, time.monotonic_ns())
    return window.result()


async def balances(bootstrap: str, topic: str) -> Accounts:
    """The final balances, from all records of the topic."""
    accounts = Accounts()
    async with TransactionClient(bootstrap, topic, accounts) as client:
        await client.caught_up()
    return accounts


def main() -> int:
    """Jobs until standard input ends."""
    for line in sys.stdin:
        try:
            response = asyncio.run(work(json.loads(line)))
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(response), flush=True)
        if "error" in response:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
