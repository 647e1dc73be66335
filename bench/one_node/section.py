"""What docs/benchmarks.md says of one broker against one broker. Measures nothing."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import facts, reservations, table, with_failures, written_table


def section(result: dict[str, Any]) -> str:
    """One broker against one broker."""
    parts = [
        "## One node",
        "Figures are medians over the sessions.",
        facts(result),
        reservations(result),
        table(result, "github"),
        "*Both flush*: Kafka topics with `flush.messages=1`, Lockstep with `log.flush=always`. *Neither "
        "flushes*: Kafka as shipped, Lockstep with `log.flush=os`. *Durable vs as shipped*: a Lockstep that "
        "flushes against a Kafka that does not.",
        "### What reached the disk",
        written_table(result, "github"),
        "A durable figure counts only if the device was asked to flush often enough: in a closed loop of N "
        "requests at most N can be acknowledged by one flush. What a virtual disk does with a flush is not "
        "known from inside.",
    ]
    return with_failures(parts, result)
