"""What was promised: every goal of the results on the page but the headline's, in one table. Pure."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from bench.figures.tables import interval, verdict

OWN_TABLE = "headline"
"""The kind whose section begins with its own count of goals."""


def judged(results: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(result, row) of each ratio that has a goal, in the page's order."""
    return [
        (result, row)
        for result in results
        if result.get("kind") != OWN_TABLE
        for row in result.get("comparison", [])
        if "goal" in row
    ]


def section(results: list[dict[str, Any]]) -> str:
    """What docs/benchmarks.md says of it; empty where nothing has a goal."""
    found = judged(results)
    if not found:
        return ""
    lines = []
    for result, row in found:
        value = row["value"]
        shown = "no figures" if value is None else f"{value:.2f}"
        place = [result.get("kind", "one node"), str(result.get("started", ""))[:10]]
        lines.append([*place, row["title"], shown, interval(row)[0], row["goal"], verdict(row)])
    commits = {str(result.get("code", {}).get("commit")) for result, _ in found}
    met = sum(bool(row.get("met")) for _, row in found)
    heads = ["measured by", "on", "", "ratio, or slope", "95 %", "goal", ""]
    parts = [
        "## What was promised",
        f"{met} of {len(found)} goals of earlier steps met, as the sections below measured them, each on its "
        "day and commit, with what disturbed it. What is "
        "missed, and why: [decision 30](decisions/0030-tried-for-speed.md) for the broker, "
        "[decision 33](decisions/0033-how-late-a-target-hears.md) for the player. They are of "
        f"{len(commits)} commits, not of one run. A ratio without an interval is one of medians over "
        "few sessions (two of three nodes and of the player: their mean; four of one node): within a "
        "twentieth of its goal another run may end otherwise.",
        tabulate(lines, headers=heads, tablefmt="github", disable_numparse=True),
    ]
    return "\n\n".join(parts) + "\n"
