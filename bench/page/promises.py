"""The table of promises: every goal of the results on the page but the headline's. Pure."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import interval, text_table, verdict
from bench.figures.templates import fill_text
from bench.full.lookup import Grid

OWN_TABLE = "headline"
"""The kind whose section begins with its own count of goals."""


def ratios_with_goals(results: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(result, row) of each ratio that has a goal, in the page's order."""
    return [
        (result, row)
        for result in results
        if result.get("kind") != OWN_TABLE
        for row in result.get("comparison", [])
        if "goal" in row
    ]


def counts(results: list[dict[str, Any]]) -> str:
    """The number of goals met by kind, on one line; empty where nothing has a goal."""
    found = ratios_with_goals(results)
    of_kind: dict[str, list[bool]] = {}
    for result, row in found:
        of_kind.setdefault(result.get("kind", "one node"), []).append(bool(row.get("met")))
    if not found:
        return ""
    said = ", ".join(f"{kind} {sum(each)} of {len(each)}" for kind, each in of_kind.items())
    met = sum(bool(row.get("met")) for _, row in found)
    return f"Of the goals of earlier steps {met} of {len(found)} are met: {said}."


def _commits(results: list[dict[str, Any]], grid: Grid) -> str:
    """The run of two that counts for offset commits, with the other's figures; empty without two."""
    pair = [grid.row("groups", 1, target) for target in ("lockstep", "kafka-flush")]
    rows = [
        row for _, row in ratios_with_goals(results) if row.get("ratio") == "commits.flush" and row["value"]
    ]
    if not rows or pair[0] is None or pair[1] is None:
        return ""
    ours, theirs = (row["medians"]["commits_requests_per_s"] for row in pair if row)
    return (
        f"*Offset commits* are judged by `python -m bench all` ({rows[0]['value']:.2f}); the "
        f"[grid](benchmarks/grid.md) has the ratio of another run, {ours / theirs:.2f}, which is not judged."
    )


def section(results: list[dict[str, Any]], grid: Grid | None = None, memory: str = "") -> str:
    """Every goal; empty where nothing has one.

    Args: memory: the sentence about one node's.
    """
    found = ratios_with_goals(results)
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
    return fill_text(
        "promised",
        met=met,
        goals=len(found),
        table=text_table(lines, heads),
        commits=len(commits),
        offset_commits=_commits(results, grid or Grid(None)),
        memory=f"*Resident memory* of one node. {memory}" if memory else "",
    )
