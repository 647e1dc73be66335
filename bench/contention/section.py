"""The section of docs/benchmarks/ about contention. Measures nothing."""

from __future__ import annotations

from typing import Any

from bench.contention import figures as contended
from bench.figures.tables import facts, with_failures

PICTURE = "contention.svg"
"""Beside the page, drawn by `python -m bench contention`."""


def section(result: dict[str, Any]) -> str:
    """Clients that want the same few accounts."""
    parts = [
        "## Contention",
        facts(result),
        f"![Contention: goodput, refusals, shares and waits]({PICTURE})",
        contended.table(result, "github"),
        "*How to read this.* One node that flushes, and clients (`lockstep.transactions`; 16 where the "
        "command says nothing else), each a process of its own, all on this one machine. A transaction reads "
        "the balance of one of so many hot accounts and writes it again under a write lock; the next one "
        "begins when this one is applied. Every client applies everybody's transactions. Medians over the "
        "rounds; shares and waits are the worst of them. Nobody starves: each client has at least "
        f"{contended.LEAST_SHARE:.0%} of a client's mean successes, and none waits for one longer than "
        f"{contended.MOST_MEAN_WAITS:.0f} mean waits, or {contended.FORGIVEN_WAIT_S:.0f} s where that is "
        "longer. Afterwards the log was read: each success is there once, no update was lost.",
    ]
    return with_failures(parts, result)
