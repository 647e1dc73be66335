"""What docs/benchmarks/ says of one broker against one broker. Measures nothing."""

from __future__ import annotations

import statistics
from typing import Any

from bench.figures.ratios import SUBJECT
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
    """Lowest and highest of the memory, and what the sessions hold that serve every row; empty without."""
    said = ""
    rows = [row for row in result["comparison"] if row.get("ratio") == MEMORY and row["value"] is not None]
    for row in rows:
        ends = [
            f"{result[side]} {number(min(row[f'{side}_values']))} to {number(max(row[f'{side}_values']))} MB"
            for side in ("subject", "baseline")
        ]
        said += f"Highest memory of a session: {', '.join(ends)}."
        whole = _of_whole_sessions(result)
        if whole and len(whole) < len(row["subject_values"]):
            middle = statistics.median(whole)
            said += (
                f" Only {len(whole)} of our {len(row['subject_values'])} sessions serve every row, 10,000 "
                f"members among them, as all of {result['baseline']}'s do; these have {number(middle)} MB in "
                f"the median, {middle / row['baseline']:.2f} of {result['baseline']}'s."
            )
    return said


def _of_whole_sessions(result: dict[str, Any]) -> list[float]:
    """The highest memory of each of our sessions that has a block of every name that one of them has."""
    sessions = [each for each in result["sessions"] if each["side"] == SUBJECT and each["memory"]]
    names = [{block["name"] for block in session["blocks"]} for session in sessions]
    every = set().union(*names) if names else set()
    return [
        float(session["memory"]["rss_max_mb"])
        for session, served in zip(sessions, names, strict=True)
        if served == every
    ]
