"""The picture of a headline result: every ratio with its interval, and the goal. Measures nothing.

Every ratio is drawn so that right is better: where less is better (times, memory) it is Kafka over Lockstep.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import pictures
from bench.figures.ratios import UNEQUAL, more_is_better

GROUPS = {"both flush": "both flush each write", UNEQUAL: "a durable Lockstep, Kafka as shipped"}
"""Words in the titles of ratios, and the panel's title; the rest has a panel of its own."""
COLOURS = {True: "tab:blue", False: "tab:orange"}
"""By whether Lockstep is the better one."""


def times_better(row: dict[str, Any], value: float) -> float:
    """A value of this ratio's as how many times better Lockstep is."""
    return value if more_is_better(row["unit"]) else 1 / value


def panels_of(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The ratios that have a value, by panel, in order."""
    found: dict[str, list[dict[str, Any]]] = {
        title: [] for title in (*GROUPS.values(), "reads, memory, start")
    }
    *_, others = found
    for row in result["comparison"]:
        if row["value"] is not None:
            words = [title for word, title in GROUPS.items() if word in row["title"]]
            found[words[0] if words else others].append(row)
    return found


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture; the file's suffix is its format."""
    groups = panels_of(result)
    longest = max(len(rows) for rows in groups.values())
    figure, panels = pictures.canvas("headline", 1, len(groups), (17.0, 1.2 + 0.24 * longest))
    for panel, (title, rows) in zip(panels, groups.items(), strict=True):
        panel.set_title(f"{title}: times better than Kafka", fontsize=8)
        panel.set_xscale("log", base=2)
        panel.axvline(1.0, color="black", linewidth=0.8)
        names = [row["title"] for row in rows]
        for word in GROUPS:
            names = [name.replace(f", {word}", "") for name in names]
        panel.set_yticks(range(len(rows)), names, fontsize=7)
        panel.invert_yaxis()
        panel.xaxis.set_major_formatter("{x:g}")
        for place, row in enumerate(rows):
            value = times_better(row, row["value"])
            if row.get("low") is not None:
                ends = sorted(times_better(row, row[end]) for end in ("low", "high"))
                panel.plot(ends, [place, place], color="tab:gray", linewidth=1.5)
            panel.plot([value], [place], "o", color=COLOURS[value >= 1.0], markersize=5)
            if "goal" in row:
                goal = times_better(row, float(row["goal"].split()[1]))
                panel.plot([goal], [place], "|", color="tab:red", markersize=9)
    pictures.save(figure, panels, path)
