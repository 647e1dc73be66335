"""The loop over the expiration rules of groups, transactions and stages.

Owns: the times at which rules are enforced, and the log line of one that failed. Invariant: a rule that
waits, as for a commit, holds no other rule up; a failure ends no rule. Does not: know what expires
(`broker/groups/offset_expiration.py`, `broker/transactions/transaction_expiration.py`,
`broker/staging/stage_expiration.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

log = logging.getLogger("lockstep.expiration")


class ExpirationRule(NamedTuple):
    """Something that expires. Its name is the subject of a log line: "... failed"."""

    name: str
    interval_ms: Callable[[], float]
    enforce: Callable[[], Awaitable[object]]
    at_start: Callable[[], Awaitable[object]] | None = None
    """Enforced once before the first interval."""


class ExpirationLoop:
    """Enforces each rule at its own interval."""

    def __init__(self, rules: Sequence[ExpirationRule]) -> None:
        self._rules = rules

    async def run(self) -> None:
        """Runs until cancelled."""
        await asyncio.gather(*[_run_rule(rule) for rule in self._rules])


async def _run_rule(rule: ExpirationRule) -> None:
    if rule.at_start is not None:
        await _enforce(rule.name, rule.at_start)
    while True:
        await asyncio.sleep(rule.interval_ms() / 1000)
        await _enforce(rule.name, rule.enforce)


async def _enforce(name: str, enforce: Callable[[], Awaitable[object]]) -> None:
    try:
        await enforce()
    except Exception:  # what does not expire piles up, or holds readers up for ever
        log.exception("%s failed", name)
