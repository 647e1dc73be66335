"""The grid in docs/benchmarks/grid.md: the rows of today's cells, and the text above its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.baselines.targets import WORDS
from bench.figures import origins
from bench.figures.templates import fill_text
from bench.full.cells import cells_of, read_all
from bench.full.lookup import MARKED
from bench.full.rows import Row, failures_of, is_comparison, paths_of
from bench.full.tables import SHOWN, by_table, cost_section, rows_too_far_apart, tables
from bench.full.work import MEMORY_S
from bench.kept import Unreadable, read

KIND = "full"


def collect_rows(directory: Path) -> dict[str, Any]:
    """The rows below a directory of today's cells, or of workloads without a file, as one result; the facts
    are those of the newest cell.

    Raises Unreadable without rows, ValueError with those of quick runs, MixedMachines where a table is of
    several machines.
    """
    paths = paths_of(directory)
    names = ("cell", "settings", "started", "code", "machine")
    workloads = read_all()
    expected = {
        str(cell): cell.digest for each in workloads for nodes in each.nodes for cell in cells_of(each, nodes)
    }
    found: list[Row] = [{"workload": path.parent.name, **read(path, *names)} for path in paths]
    files = {each.name for each in workloads}
    rows = [
        row for row in found if row["workload"] not in files or expected.get(row["cell"]) == row.get("digest")
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
        "cells": len(expected),
        "descriptions": {each.name: each.about for each in workloads},
        **shared,
    }


def comparisons(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The whole results of the project's own comparisons that the grid has run, `kept_in` with each."""
    rows = [row for row in result["rows"] if is_comparison(row) and "error" not in row]
    return [
        {**block["result"], "kept_in": f"full/{row['cell']}.json"} for row in rows for block in row["rounds"]
    ]


def section(result: dict[str, Any]) -> str:
    """Every cell there is."""
    cells = [row for row in result["rows"] if row["settings"]["kind"] in SHOWN]
    closed = [row for row in cells if row["settings"]["kind"] == "produce" and not row["point"].get("rate")]
    failures = [(row["cell"], each.splitlines()[0]) for row in result["rows"] for each in failures_of(row)]
    errors = [f"- {cell}: {failure}" for cell, failure in failures]
    present = {row["target"] for row in result["rows"]}
    return fill_text(
        "full",
        result,
        measured=sum(not failures_of(row) for row in result["rows"]),
        legend="\n".join(f"- `{name}`: {words}" for name, words in WORDS.items() if name in present),
        marked=MARKED,
        closed=len(closed),
        closed_apart=len(rows_too_far_apart(closed)),
        cells=len(cells),
        cells_apart=len(rows_too_far_apart(cells)),
        memory_s=MEMORY_S[1],
        cost=cost_section(result),
        tables="\n\n".join(tables(result)),
        failed_cells="\n".join(["Failed:", "", *errors]) if errors else "",
    )
