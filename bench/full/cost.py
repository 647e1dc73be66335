"""The cost of the same work for each broker: CPU for a million records, memory, flushes, device bytes.
Pure."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from bench.baselines.targets import TARGETS
from bench.figures.templates import fill_text
from bench.full.lookup import LOADS, Grid
from bench.full.spread import is_apart

POINT = {"partitions": 16, "producers": 16, "rate": 0}
FIGURES = {
    "cpu_s_per_million_records": "CPU s per million records",
    "rss_max_mb": "resident memory, highest, MB",
    "flushes_per_mb": "flushes per MB",
    "device_bytes_per_byte": "device bytes per byte",
}
"""Of a row's medians, and the heads of their columns."""


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """A line for each number of nodes, load and broker that was measured at `POINT` with messages of 1 KB."""
    grid = Grid(result)
    found = []
    for nodes in (1, 3):
        for load, words in LOADS.items():
            for target in TARGETS:
                row = grid.row(f"{load}-1kb", nodes, target, **POINT)
                if row is None or "cpu_s_per_million_records" not in row["medians"]:
                    continue
                mark = " ~" if is_apart(row, "requests_per_s") else ""
                figures = [_figure(row["medians"].get(name)) for name in FIGURES]
                found.append([str(nodes), words, f"`{target}`{mark}", *figures])
    return found


def section(result: dict[str, Any]) -> str:
    """The table, and how it is to be read; empty without rows."""
    found = rows_of(result)
    if not found:
        return ""
    heads = ["nodes", "load", "broker", *FIGURES.values()]
    table = tabulate(found, headers=heads, tablefmt="github", disable_numparse=True)
    return fill_text("cost", table=table).strip()
