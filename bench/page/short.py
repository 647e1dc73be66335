"""The first page's tables "in short": each figure of one named source, Lockstep, Kafka and the ratio. Pure.

A figure is the headline's where that has it, with its ratio of pairs; else the grid's; else that of one node
or of three. Where two runs measure the same with unlike clients, the one with the headline's client is taken.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from bench.figures import kills
from bench.figures.tables import number, text_table
from bench.figures.templates import fill_text
from bench.full.lookup import (
    BOTH,
    BOTH_TUNED,
    CROSS,
    FREE,
    FREE_TUNED,
    LOADS,
    MARK,
    TARGET_PAIRS,
    Grid,
    doubt,
    keeps_rate,
    mean,
)
from bench.full.rows import MESSAGES_MB, Row, median
from bench.page.prepared import ONE_NODE

Results = dict[str, dict[str, Any]]

RATE: Final = 2000
NODES: Final = {1: "one node", 3: "three nodes"}
SOURCES: Final = {"headline": "headline", "full": "grid", ONE_NODE: "one node", "nodes3": "three nodes"}
"""By kind of result: the text of the last column."""


class Cell(NamedTuple):
    """A cell of the table, and its source."""

    text: str
    source: str


Cells = dict[str, Cell | None]
"""By promise."""


def _words(value: float, ours: float, theirs: float, marks: str = "") -> str:
    return f"**{value:.2f}** ({number(ours)} / {number(theirs)}){marks}"


def row_of(results: Results, kind: str, ratio: str) -> dict[str, Any] | None:
    """The row of a comparison that has figures; None where there is none."""
    rows = results.get(kind, {}).get("comparison", [])
    found = [row for row in rows if row.get("ratio") == ratio and row["value"] is not None]
    return found[0] if found else None


def _comparison_cell(results: Results, kind: str, ratio: str) -> Cell | None:
    """A figure of one of the comparisons."""
    row = row_of(results, kind, ratio)
    return Cell(_words(row["value"], row["subject"], row["baseline"]), SOURCES[kind]) if row else None


def _grid_cell(pair: tuple[Row, Row] | None, figure: str) -> Cell | None:
    """A figure of the grid; words instead where a broker did not keep the rate that it was measured at."""
    if pair is None:
        return None
    late = [name for name, row in zip(("Lockstep", "Kafka"), pair, strict=True) if not keeps_rate(row)]
    if late:
        rates = " and ".join(f"{median(row, 'requests_per_s') or 0:,.0f}" for row in pair)
        return Cell(f"{' and '.join(late)} did not keep the rate ({rates}/s)", SOURCES["full"])
    ours, theirs = (median(row, figure) for row in pair)
    if ours is None or not theirs:
        return None
    compared = "p50_ms" if pair[0]["point"]["rate"] else "requests_per_s"
    mark = f" {MARK}" if any(doubt(row, compared) for row in pair) else ""
    return Cell(_words(ours / theirs, ours, theirs, mark), SOURCES["full"])


def _rows(results: Results, grid: Grid, nodes: int) -> Iterable[tuple[str, Cells]]:
    """Title and, by promise, the figure from the first source that has it."""
    head, kind, end = ("", ONE_NODE, "") if nodes == 1 else ("n3.", "nodes3", ".g1")

    def of_grid(workload: str, figure: str, partitions: int, rate: int = 0) -> Cells:
        point = {"partitions": partitions, "producers": 16, "rate": rate}
        return {each: _grid_cell(grid.pair(workload, nodes, each, **point), figure) for each in TARGET_PAIRS}

    yield (
        "throughput, 1 partition, 1 producer, MB/s",
        {
            BOTH: _comparison_cell(results, "headline", f"{head}produce.flush"),
            FREE: _comparison_cell(results, kind, f"produce.os{end}"),
            CROSS: _comparison_cell(results, "headline", f"{head}produce.cross"),
        },
    )
    title = "throughput, 16 partitions, 16 producers, MB/s"
    yield title, of_grid("throughput-1kb", MESSAGES_MB, 16)
    cells = of_grid("requests-1kb", "requests_per_s", 1)
    for promise, name in ((BOTH, "flush"), (CROSS, "cross")):
        cells[promise] = (
            _comparison_cell(results, "headline", f"{head}latency16.rate.{name}") or cells[promise]
        )
    yield "requests/s, 1 partition, 16 producers", cells
    yield "requests/s, 16 partitions, 16 producers", of_grid("requests-1kb", "requests_per_s", 16)
    for partitions, where in ((1, "1 partition"), (16, "16 partitions")):
        for quantile in ("p50", "p99"):
            title = f"{quantile} at {RATE:,} requests/s, {where}, ms"
            yield title, of_grid("rate-1kb", f"{quantile}_ms", partitions, RATE)
    title = "CPU s per million requests, 16 partitions, 16 producers"
    yield title, of_grid("requests-1kb", "cpu_s_per_million_records", 16)


def _line(title: str, cells: Cells) -> list[str]:
    """The row of the table: its last cell is the source of most cells and, by name, what is from others."""
    sources = {promise: cell.source for promise, cell in cells.items() if cell}
    common, _ = Counter(sources.values()).most_common(1)[0]
    others = [f"{promise}: {source}" for promise, source in sources.items() if source != common]
    texts = [cell.text if cell else "" for cell in (cells[each] for each in TARGET_PAIRS)]
    return [title, *texts, "; ".join([common, *others])]


def promised_table(results: Results, grid: Grid) -> str:
    """The figures that depend on flushing; empty where nothing was measured."""
    lines = [
        _line(f"{where}: {title}", cells)
        for nodes, where in NODES.items()
        for title, cells in _rows(results, grid, nodes)
        if any(cells.values())
    ]
    heads = ["Lockstep over Kafka (both figures)", *TARGET_PAIRS, "source"]
    return text_table(lines, heads)


def tuned_table(grid: Grid) -> str:
    """Means beside a Kafka as it comes and tuned, messages of 1 KB; empty where none was tuned."""
    promises = [BOTH, BOTH_TUNED, FREE, FREE_TUNED]
    lines = []
    for nodes, where in NODES.items():
        for load, what in LOADS.items():
            found = [grid.closed_loops(load, nodes, promise, sizes=["1kb"]) for promise in promises]
            if all(found):
                lines.append([f"{where}: {what}", *(f"{mean(pairs):.2f}" for pairs in found)])
    heads = ["Lockstep over Kafka, means of the grid", *promises]
    return text_table(lines, heads)


def lost_leader(results: Results, grid: Grid) -> tuple[list[float], list[float], str] | None:
    """Seconds from the kill of a leader of three to the next acknowledgement, ours and Kafka's, and where
    they are from: the run with the most kills. None where none was measured."""
    found: list[tuple[list[float], list[float], str]] = []
    pair = [grid.row("failover", 3, target) for target in ("lockstep", "kafka")]
    if pair[0] is not None and pair[1] is not None:
        ours, theirs = ([block["figures"]["first_ack_s"] for block in row["rounds"]] for row in pair if row)
        found.append((ours, theirs, SOURCES["full"]))
    row = row_of(results, "nodes3", "loss.g1")
    if row is not None:
        found.append((row["subject_values"], row["baseline_values"], SOURCES["nodes3"]))
    return max(found, key=lambda each: len(each[0]), default=None)


def whole_table(results: Results, grid: Grid) -> str:
    """Memory, and how long nothing is acknowledged; empty where nothing was measured."""
    lines = []
    for title, ratio in (
        ("one node: resident memory, highest, MB", "memory"),
        ("three nodes: resident memory of all, highest, MB", "n3.memory"),
        ("one node: kill -9 to first acknowledgement, s", "restart"),
    ):
        row = row_of(results, "headline", ratio)
        if row is not None:
            sides = [_with_ends(row[side], row[f"{side}_values"]) for side in ("subject", "baseline")]
            lines.append([title, *sides, f"{row['value']:.2f}", SOURCES["headline"]])
    lost = lost_leader(results, grid)
    if lost is not None:
        ours, theirs, source = lost
        ratio_text = ""
        our_times, their_times = kills.observed_times(ours), kills.observed_times(theirs)
        if our_times and their_times:
            ratio_text = f"{statistics.median(our_times) / statistics.median(their_times):.2f}"
        title = "three nodes: leader killed to next acknowledgement"
        lines.append([title, kills.words(ours), kills.words(theirs), ratio_text, source])
    heads = ["", "Lockstep", "Kafka", "ratio", "source"]
    return text_table(lines, heads)


def _with_ends(middle: float, found: list[float]) -> str:
    """A median, and the lowest and highest of the sessions."""
    return f"{number(middle)} ({number(min(found))} to {number(max(found))})"


def section(results: Results, grid: Grid) -> str:
    """The beginning of docs/benchmarks.md; empty where nothing was measured."""
    made = promised_table(results, grid), whole_table(results, grid), tuned_table(grid)
    tables = "\n\n".join(text for text in made if text)
    return fill_text("short", tables=tables, mark=MARK) if tables else ""
