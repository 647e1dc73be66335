"""The losses of Lockstep: the comparisons of all results that it did not win (the grid: `grid_losses`). Pure.

Owns: what counts as a loss. Growth of one's own and bounds of one's own are no comparison
with another broker and are left out; a missed goal is no loss, and a goal met may still be one.
"""

from __future__ import annotations

from typing import Any

from bench.figures.ratios import UNEQUAL, more_is_better
from bench.figures.tables import text_table
from bench.figures.templates import fill_text

ROUNDED = 0.005
"""What is shown as 1.00 is neither won nor lost."""
HEADS = ["measured by", "", "ratio", "may be noise"]


def is_compared(row: dict[str, Any]) -> bool:
    """True if there is a figure of another broker."""
    return row["value"] is not None and "baseline_growth" not in row and not row.get("bound")


def is_lost(row: dict[str, Any]) -> bool:
    """True if the other broker was better. Raises ValueError for a unit without a direction."""
    if not is_compared(row):
        return False
    value = row["value"]
    try:
        more = more_is_better(row["unit"])
    except ValueError as error:
        raise ValueError(f"{row['ratio']}: {error}") from None
    return bool(value < 1.0 - ROUNDED if more else value > 1.0 + ROUNDED)


def is_with_another(result: dict[str, Any]) -> bool:
    """True if Lockstep is measured beside another broker, not beside itself."""
    return result.get("subject") == "lockstep" and result.get("baseline") != "lockstep"


def _within_noise(row: dict[str, Any]) -> str:
    """True if the same broker differs from itself by as much, or the interval holds 1."""
    low, high, noise = row.get("low"), row.get("high"), row.get("noise")
    if low is not None and high is not None and low <= 1.0 <= high:
        return "the interval holds 1"
    if noise is not None and 1 / noise <= row["value"] <= noise:
        return "within the A/A spread"
    return "no interval" if low is None and noise is None else "no"


def losses(results: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each loss: where, what, the ratio, whether it may be noise; the largest of each first.

    Args: results: comparisons with another broker.
    """
    found = []
    for result in results:
        lost = [row for row in result["comparison"] if is_lost(row)]
        lost.sort(key=lambda row: max(row["value"], 1 / row["value"]), reverse=True)
        kind = result.get("kind", "one node")
        found += [[kind, row["title"], f"{row['value']:.2f}", _within_noise(row)] for row in lost]
    return found


def _comparison_rows(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in results if each.get("comparison") and is_with_another(each)]


def _count(results: list[dict[str, Any]]) -> int:
    return sum(is_compared(row) for result in results for row in result["comparison"])


def section(results: list[dict[str, Any]]) -> str:
    """Every loss; empty where nothing was compared."""
    compared = _comparison_rows(results)
    if not compared:
        return ""
    rows, total = losses(compared), _count(compared)
    if not rows:
        return f"## In the comparisons\n\nKafka is better in none of {total} ratios.\n"
    table = text_table(rows, HEADS)
    unequal = sum(UNEQUAL in title for _, title, _, _ in rows)
    return fill_text("losses", total=total, lost=len(rows), unequal=unequal, table=table)


def short(results: list[dict[str, Any]]) -> str:
    """A line for each kind with losses: how many, the largest; empty where nothing was compared."""
    lines = []
    won: list[tuple[str, int]] = []
    for result in _comparison_rows(results):
        lost = losses([result])
        if not lost:
            won.append((result.get("kind", "one node"), _count([result])))
            continue
        unequal = sum(UNEQUAL in title for _, title, _, _ in lost)
        worst = f"{lost[0][1]}: {lost[0][2]}"
        counted = f"{len(lost)} of {_count([result])}"
        lines.append([result.get("kind", "one node"), counted, str(unequal), worst])
    heads = ["measured by", "Kafka better", f"of these {UNEQUAL}", "largest loss"]
    table = text_table(lines, heads)
    kinds, counts = ", ".join(kind for kind, _ in won), sum(count for _, count in won)
    none = f"Kafka is better in none of the {counts} ratios of {kinds}." if won else ""
    return "\n\n".join(text for text in (table, none) if text)
