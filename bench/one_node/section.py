"""The section of docs/benchmarks/ about one broker against one broker. Measures nothing."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import facts, number, reservations, table, with_failures, written_table

MEMORY = "memory.max"


def section(result: dict[str, Any]) -> str:
    """One broker against one broker."""
    parts = [
        "## One node",
        facts(result),
        reservations(result),
        table(result, "github"),
        f"Figures are medians over the sessions. {memory(result)}".strip(),
        "### What reached the disk",
        written_table(result, "github"),
        "A durable figure counts only if the device was asked to flush often enough: in a closed loop of N "
        "requests at most N can be acknowledged by one flush. What a virtual disk does with a flush is not "
        "known from inside.",
    ]
    return with_failures(parts, result)


def memory(result: dict[str, Any]) -> str:
    """Lowest and highest of the sessions' memory; empty without."""
    said = ""
    rows = [row for row in result["comparison"] if row.get("ratio") == MEMORY and row["value"] is not None]
    for row in rows:
        ends = [
            f"{result[side]} {number(min(row[f'{side}_values']))} to {number(max(row[f'{side}_values']))} MB"
            for side in ("subject", "baseline")
        ]
        said += f"Memory is that of sessions that serve every row: at most {', '.join(ends)}."
    return said
