"""The grid in docs/benchmarks/grid.md: which rows are of today's cells, and what is said above its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.baselines.targets import WORDS
from bench.figures import origins
from bench.figures.tables import facts, join_parts
from bench.full import cost
from bench.full.cells import cells_of
from bench.full.lookup import MARKED
from bench.full.rows import failures_of, is_comparison, paths_of
from bench.full.spread import Row
from bench.full.tables import SHOWN, by_table, rows_too_far_apart, tables
from bench.full.work import MEMORY_S
from bench.full.workloads import read_all
from bench.kept import Unreadable, read

KIND = "full"


def collect_rows(directory: Path) -> dict[str, Any]:
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
    for table in by_table(cells).values():
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


def comparisons(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The whole results of the project's own comparisons that the grid has run, `kept_in` with each."""
    rows = [row for row in result["rows"] if is_comparison(row) and "error" not in row]
    return [
        {**block["result"], "kept_in": f"full/{row['cell']}.json"} for row in rows for block in row["rounds"]
    ]


def _how(result: dict[str, Any]) -> list[str]:
    """The notes for readers of the tables, a line each."""
    cells = [row for row in result["rows"] if row["settings"]["kind"] in SHOWN]
    closed = [row for row in cells if row["settings"]["kind"] == "produce" and not row["point"].get("rate")]
    return [
        "A cell is the median of its rounds: two short blocks where a workload says nothing else, without an "
        f"interval. {MARKED} (in their first figure; at a fixed rate, in their p50), so that its figure is "
        f"of neither. That is so in {len(rows_too_far_apart(closed))} of {len(closed)} closed loops and in "
        f"{len(rows_too_far_apart(cells))} of all {len(cells)} cells.",
        "Below a table, *behind* is a cell all of whose rounds are worse than all rounds of the other: what "
        "lies within the spread is not counted. `lockstep` is held against every Kafka, `lockstep-os` "
        "against those that flush nothing either.",
        "A `rate` of 0 is as fast as it goes; else latency counts from when a request was due.",
        "Megabytes are those of messages, without the batches' headers.",
        "Workloads are the files of `bench/workloads`; brokers in memory are measured for "
        f"{MEMORY_S[1]:g} s at most, as they would fill it.",
        "A row in `bench/results/full` has the highest memory while its cell was measured. Rows of "
        "producers, of reading while writing, of fan-out and of idle connections have CPU, flushes and "
        "device bytes, too; rows of groups, of starts and of lost leaders have none of these. Rows of "
        "producers, of reading while writing and of idle connections name the files of their raw "
        "nanoseconds, with SHA-256; the files stay on the machine that measured. Whole comparisons have "
        "pages of their own.",
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
        "measured; `python -m bench full` measures what is missing, some four hours for all. An acknowledged "
        "write:",
        "\n".join(legend),
        facts(result),
        "\n".join(["How to read the tables:", "", *(f"- {line}" for line in _how(result))]),
        cost.section(result),
        *tables(result),
        "\n".join(["Failed:", "", *errors]) if errors else "",
    ]
    return join_parts(parts)
