"""The grid's rows on disk: one JSON file a cell, and its raw nanoseconds, compressed, beside it.

Owns: paths, which cells are there, medians over the rounds and what is derived from them. A row is written
whole or not at all. Layout: `WORKLOAD/CELL.json`; `raw/WORKLOAD/CELL-ROUND.i64.gz` (as `bench.raw` has it),
which the row names with its SHA-256. A cell that failed has a row, too, with the error instead of figures.
The grid is read by two rules: rounds that differ by more than `FAR` mark their cell, and one cell is behind
another only where every round of it is worse than every round of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import raw
from bench.figures import origins
from bench.figures.ratios import medians, more_is_better
from bench.full.cells import Cell
from bench.kept import read, write
from bench.sessions.jobs import Block


class Rows:
    """The rows below one directory. Args: quick: those of quick runs, and no others."""

    def __init__(self, directory: Path, quick: bool = False) -> None:
        self.directory = directory
        self.quick = quick

    def path(self, cell: Cell) -> Path:
        return self.directory / cell.workload.name / f"{cell.name}.json"

    def row(self, cell: Cell) -> Row | None:
        """The row of this very cell; None where there is none, or one of a workload as it was, or of a run
        with another warm-up."""
        path = self.path(cell)
        if not path.exists():
            return None
        found = read(path, "digest")
        same = found["digest"] == cell.digest and found.get("quick", False) == self.quick
        return found if same else None

    def is_missing(self, cell: Cell, again: bool = False) -> bool:
        """True if it has to be measured. Args: again: failed ones, too."""
        row = self.row(cell)
        return row is None or (again and bool(failures_of(row)))

    def cells_of_other_machines(self, workload: str, nodes: int, machine: dict[str, Any]) -> set[str]:
        """The names of one table's cells that have rows of another machine."""
        paths = (self.directory / workload).glob(f"{nodes}n-*.json")
        return {
            path.stem for path in paths if origins.differing_facts(read(path, "machine")["machine"], machine)
        }

    def forget(self, cells: Iterable[Cell]) -> None:
        """Remove their rows, which are to be measured again: they are missing from now on."""
        for cell in cells:
            self.path(cell).unlink(missing_ok=True)

    def write(self, cell: Cell, facts: dict[str, Any], rounds: list[Block], error: str = "") -> Row:
        """Keep what the rounds came to, or why they came to nothing."""
        row = {"format": 1, "cell": str(cell), **cell.definition(), "digest": cell.digest, **facts}
        row |= {"quick": True} if self.quick else {}
        row |= {"error": error} if error else {"medians": row_medians(rounds), "rounds": rounds}
        write(self.path(cell), json.dumps(row, indent=1) + "\n")
        return row

    def write_raw(self, cell: Cell, number: int, data: bytes) -> dict[str, Any]:
        """Keep one round's latencies; returns the row's fields about them."""
        directory = self.directory / raw.DIRECTORY / cell.workload.name
        return raw.write(directory / f"{cell.name}-{number}{raw.SUFFIX}", data)


def paths_of(directory: Path) -> list[Path]:
    """Every row's file below a directory, in order."""
    return sorted(path for path in directory.glob("*/*.json") if path.parent.name != raw.DIRECTORY)


def is_comparison(row: Row) -> bool:
    """True if it holds a whole comparison, with facts of its own: its ratios are of one run."""
    return bool(row["settings"]["kind"] == "command")


def failures_of(row: Row) -> list[str]:
    """The failures of a row: its own error, or those within a command that gave a result."""
    if "error" in row:
        return [str(row["error"])]
    return [str(failure) for block in row["rounds"] for failure in block.get("failures", [])]


def figures_with_costs(block: Block) -> dict[str, float]:
    """A block's figures with what they cost: CPU, flushes and device bytes for what was acknowledged."""
    figures = {
        name: float(value) for name, value in block["figures"].items() if isinstance(value, int | float)
    }
    if "rss_max_mb" in block:
        figures["rss_max_mb"] = block["rss_max_mb"]
    records, size = figures.get("total_records", 0.0), block.get("bytes", 0)
    if records and "broker_cpu_s" in block:
        figures["cpu_s_per_million_records"] = block["broker_cpu_s"] / records * 1e6
    if size and "device" in block:
        figures["flushes_per_mb"] = block["device"]["flushes"] / size * 1e6
        figures["device_bytes_per_byte"] = block["device"]["write_bytes"] / size
    return figures


def row_medians(rounds: list[Block]) -> dict[str, float]:
    """Each figure's median over the rounds that are proven, as rows have it; empty where none is."""
    found = medians(figures_with_costs(block) for block in rounds if block.get("proven", True))
    return {name: round(value, 6) for name, value in found.items()}


Row = dict[str, Any]

FAR = 1.2
"""Rounds of a cell that differ by a larger factor: its median is of neither."""
MESSAGES_MB = "messages_mb_per_s"
"""Megabytes of messages a second, the batches' own headers left out."""


def _made(figures: dict[str, Any], row: Row, name: str) -> float | None:
    if name == MESSAGES_MB:
        records = figures.get("records_per_s")
        return None if records is None else float(records) * row["settings"]["message_bytes"] / 1e6
    value = figures.get(name)
    return None if value is None else float(value)


def is_possible(name: str, value: float) -> bool:
    """True if it can have been measured: seconds after a kill that are not above 0 did not see the kill."""
    return value > 0 or name != "first_ack_s"


def median(row: Row, name: str) -> float | None:
    """The figure that is shown for a cell; None where it has none."""
    return _made(row.get("medians", {}), row, name)


def values(row: Row, name: str) -> list[float]:
    """The figure of each round that is proven, in order; the median of a row that keeps no rounds."""
    rounds = [block for block in row.get("rounds", ()) if block.get("proven", True)]
    found = [_made(block.get("figures", {}), row, name) for block in rounds]
    kept = [value for value in found if value is not None and is_possible(name, value)]
    whole = median(row, name)
    return kept or ([] if whole is None else [whole])


def is_apart(row: Row, name: str) -> bool:
    """True if the rounds of a cell differ by more than `FAR`."""
    found = values(row, name)
    return bool(found) and min(found) > 0 and max(found) > FAR * min(found)


def is_behind(unit: str, ours: list[float], theirs: list[float]) -> bool:
    """True if every round of ours is worse than every round of theirs."""
    return max(ours) < min(theirs) if more_is_better(unit) else min(ours) > max(theirs)
