"""The grid in docs/benchmarks.md: a table for each workload and number of nodes. Owns the wording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench.baselines.targets import TARGETS, WORDS
from bench.figures import origins
from bench.figures.directions import more_is_better
from bench.figures.tables import facts
from bench.full.cells import cells_of
from bench.full.rows import failures_of, is_comparison, paths_of
from bench.full.work import MEMORY_S
from bench.full.workloads import read_all
from bench.kept import Unreadable, read
from bench.machine.pauses import PAUSE_MS

KIND = "full"
SHOWN = {
    "produce": (
        ("requests_per_s", "/s", "requests answered a second"),
        ("p50_ms", "ms", "p50"),
        ("p99_ms", "ms", "p99"),
        ("max_ms", "ms", "the longest answer (median of the rounds' longest)"),
    ),
    "drain": (("drained_gb_per_s", "GB/s", "read"), ("p99_ms", "ms", "the writer's p99")),
    "fan_out": (("mb_per_s", "MB/s", "read by all groups together"),),
    "idle": (
        ("requests_per_s", "/s", "requests a second of sixteen others"),
        ("kib_each_connection", "KiB", "resident memory that each connection adds"),
    ),
    "start": (
        ("first_ack_s", "s", "from the new process to its first acknowledgement"),
        ("first_start_s", "s", "a first start, in an empty directory"),
    ),
    "groups": (
        ("commits_requests_per_s", "/s", "offset commits a second"),
        ("rebalance_start_s", "s", "until a group of 50 has settled"),
        ("members_kib_each", "KiB", "resident memory that each idle member adds"),
    ),
    "failover": (("first_ack_s", "s", "from the kill to the next acknowledgement"),),
}
"""By kind: the figures of a cell, in order, with their units and what they are."""
NOTES = {
    "idle": "Kafka's memory is growth beyond a heap that is resident already.",
    "groups": "Kafka's memory is growth beyond a heap that is resident already.",
    "start": "Most of Kafka's first acknowledgement is its `broker.session.timeout.ms`, 9 s.",
    "failover": "Most of Kafka's is its `broker.session.timeout.ms`, 9 s.",
}
"""By kind: what a reader has to know."""
TIMED = ("produce", "drain", "idle")
"""Kinds whose blocks last as long as their workload says."""
KAFKAS = ("kafka", "kafka-flush", "kafka-tuned", "kafka-tuned-flush")

Row = dict[str, Any]


def gathered(directory: Path) -> dict[str, Any]:
    """The rows below a directory that are of today's cells, or of no file that there is, as one result; facts
    are those of the newest cell.

    Raises Unreadable without rows, ValueError with those of quick runs, MixedMachines where a table is of
    several machines.
    """
    paths = paths_of(directory)
    names = ("cell", "settings", "started", "code", "machine")
    workloads = read_all()
    wanted = {
        str(cell): cell.digest for each in workloads for nodes in each.nodes for cell in cells_of(each, nodes)
    }
    found: list[Row] = [{"workload": path.parent.name, **read(path, *names)} for path in paths]
    files = {each.name for each in workloads}
    rows = [
        row for row in found if row["workload"] not in files or wanted.get(row["cell"]) == row.get("digest")
    ]
    if not rows:
        raise Unreadable(f"{directory.name} has no rows of today's workloads: python -m bench full")
    if quick := [row["cell"] for row in rows if row.get("quick")]:
        raise ValueError(f"{quick[0]} is of a quick run, which shows that it works and not how fast it is")
    cells = [row for row in rows if not is_comparison(row)]
    newest = max(cells or rows, key=lambda row: str(row["started"]))
    for table in _by_table(cells).values():
        origins.check_machine(((row["cell"], row) for row in table), table[0]["machine"])
    shared = {name: newest[name] for name in ("started", "code", "machine")}
    return {
        "kind": KIND,
        "command": "python -m bench full",
        "failures": [],
        "rows": rows,
        "commits": origins.commits_of(cells or rows),
        "cells": len(wanted),
        "abouts": {each.name: each.about for each in workloads},
        **shared,
    }


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(row: Row) -> str:
    if "error" in row:
        return "failed"
    medians = row["medians"]
    shown = SHOWN[row["settings"]["kind"]]
    return ", ".join(f"{_figure(medians[name])} {unit}" for name, unit, _ in shown if name in medians)


def _by_table(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    """The rows of each workload and number of nodes."""
    grouped: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row["workload"], row["nodes"]), []).append(row)
    return grouped


def tables(result: dict[str, Any]) -> list[str]:
    """One for each workload and number of nodes: points down, targets across."""
    cells = [row for row in result["rows"] if row["settings"]["kind"] in SHOWN]
    found = []
    for (workload, nodes), rows in _by_table(cells).items():
        targets = [name for name in TARGETS if any(row["target"] == name for row in rows)]
        points: dict[tuple[tuple[str, int], ...], dict[str, str]] = {}
        for row in rows:
            point = tuple((axis, int(value)) for axis, value in row["point"].items())
            points.setdefault(point, {})[row["target"]] = _cell(row)
        lines = [
            [
                ", ".join(f"{axis} {value:,}" for axis, value in point),
                *(cells.get(each, "") for each in targets),
            ]
            for point, cells in sorted(points.items())
        ]
        text = tabulate(lines, headers=["", *targets], tablefmt="github", disable_numparse=True)
        title = f"### {workload}, {nodes} node{'s' if nodes > 1 else ''}"
        elsewhere = _elsewhere(rows[0]["machine"], result["machine"])
        parts = (title, _about(rows[0], result["abouts"]), elsewhere, text, _behind(rows), _paused(rows))
        found.append("\n\n".join(part for part in parts if part))
    return found


def _about(row: Row, abouts: dict[str, str]) -> str:
    """What is measured, in words, and what the figures are."""
    kind = row["settings"]["kind"]
    about = abouts.get(row["workload"], "")
    figures = ", ".join(words for _, _, words in SHOWN[kind])
    said = (
        f"{about[:1].upper()}{about[1:]}." if about else "",
        f"Timed blocks of {row['settings']['minutes'] * 60:.2g} s." if kind in TIMED else "",
        f"In each cell: {figures}.",
        NOTES.get(kind, ""),
    )
    return " ".join(filter(None, said))


def _behind(rows: list[Row]) -> str:
    """By which figures, and in how many points of a table, Lockstep is behind a Kafka that promises no more;
    empty where there is nothing to compare. Rates that all keep to are no figures."""
    said, compared = [], 0
    for figure, unit, words in SHOWN[rows[0]["settings"]["kind"]]:
        points: dict[str, dict[str, float]] = {}
        for row in rows:
            at_rate = figure == "requests_per_s" and row["point"].get("rate")
            if figure in row.get("medians", {}) and not at_rate:
                points.setdefault(json.dumps(row["point"]), {})[row["target"]] = row["medians"][figure]
        behind = []
        for other in KAFKAS:
            pairs = [each for each in points.values() if "lockstep" in each and other in each]
            compared += len(pairs)
            lost = sum(_worse(unit, each["lockstep"], each[other]) for each in pairs)
            behind += [f"`{other}` in {lost} of {len(pairs)}"] if lost else []
        said += [f"- {words}: behind {', '.join(behind)}"] if behind else []
    if not compared:
        return ""
    head = "Points where `lockstep` is behind:" if said else "`lockstep` is behind in no point."
    return "\n".join([head, "", *said] if said else [head])


def _paused(rows: list[Row]) -> str:
    """In which cells the machine itself stood still, and for how long; empty for none."""
    found = []
    for row in rows:
        longest = max((block.get("longest_pause_ms", 0.0) for block in row.get("rounds", ())), default=0.0)
        if longest >= PAUSE_MS:
            found.append(f"{row['cell'].partition('/')[2]} ({longest:.0f} ms)")
    return f"The whole machine stood still in {', '.join(found)}." if found else ""


def _worse(unit: str, ours: float, theirs: float) -> bool:
    return ours < theirs if more_is_better(unit) else ours > theirs


def _elsewhere(machine: dict[str, Any], newest: dict[str, Any]) -> str:
    """What to say of a table that is of another machine than the newest cells; empty where it is not."""
    found = [f"{name}: {machine[name]}" for name in origins.differing(machine, newest)]
    return f"Measured elsewhere, {', '.join(found)}." if found else ""


def compared(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The whole results of the project's own comparisons that the grid has run, `kept_in` with each."""
    rows = [row for row in result["rows"] if is_comparison(row) and "error" not in row]
    return [
        {**block["result"], "kept_in": f"full/{row['cell']}.json"} for row in rows for block in row["rounds"]
    ]


def section(result: dict[str, Any]) -> str:
    """Every cell there is."""
    errors = [
        f"- {row['cell']}: {failure.splitlines()[0]}"
        for row in result["rows"]
        for failure in failures_of(row)
    ]
    present = {row["target"] for row in result["rows"]}
    legend = [f"- `{name}`: {words}" for name, words in WORDS.items() if name in present]
    parts = [
        "## The grid",
        f"{sum(not failures_of(row) for row in result['rows'])} of {result['cells']:,} cells have been "
        "measured; `python -m bench full` measures what is missing, some four hours for all. Workloads are "
        "the files of `bench/workloads`, cells medians over their rounds (two where a workload says nothing "
        "else, no intervals); a cell's row in `bench/results/full` has its CPU, memory, flushes and device "
        "bytes as well, and the name and SHA-256 of the file of its raw nanoseconds, which stays on the "
        f"machine that measured. Brokers in memory are measured for {MEMORY_S[1]:g} s at most, as they would "
        "fill it. Cells that are whole comparisons have sections of their own. A `rate` of 0 is as fast as "
        "it goes; else latency counts from when a request was due. An acknowledged write:",
        "\n".join(legend),
        facts(result),
        *tables(result),
        "\n".join(["Failed:", "", *errors]) if errors else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
