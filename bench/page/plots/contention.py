"""The figures of a contention result as one picture. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import pictures
from bench.figures.contention import LEAST_SHARE, longest_allowed_s


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture; the file's ending says its format."""
    rows = result["rows"]
    accounts = [row["accounts"] for row in rows]
    figure, panels = pictures.canvas("contention", 2, 2, (10, 7))
    goodput, refusals, shares, waits = panels

    def line(axes: Any, name: str, words: str = "", scale: float = 1.0) -> None:
        axes.plot(accounts, [row[name] * scale for row in rows], marker="o", markersize=3, label=words)

    line(goodput, "goodput_per_s")
    goodput.set_title("transactions/s", fontsize=10)
    goodput.set_ylim(bottom=0)
    line(refusals, "refusals_per_success")
    refusals.set_title("refusals per success", fontsize=10)
    refusals.set_ylim(bottom=0)
    line(shares, "least_share", "least of the clients")
    shares.axhline(LEAST_SHARE, color="gray", linewidth=0.8, linestyle=":", label="below this: starved")
    shares.set_title("successes of a client, relative to the mean", fontsize=10)
    shares.set_ylim(0, 1.05)
    line(waits, "p50_ms", "p50")
    line(waits, "p99_ms", "p99")
    line(waits, "longest_wait_s", "longest wait for a success", 1e3)
    most = [longest_allowed_s(row) * 1e3 for row in rows]
    waits.plot(accounts, most, ":", color="gray", linewidth=0.8, label="above this: starved")
    waits.set_title("ms until a transaction is applied", fontsize=10)
    waits.set_yscale("log")
    for panel in panels:
        panel.set_xscale("log")
        panel.set_xticks(accounts, [f"{each:,}" for each in accounts])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("hot accounts")
    pictures.save(figure, panels, path)
