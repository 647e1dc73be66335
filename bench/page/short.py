"""The first page's tables "in short": each figure of one named source, Lockstep, Kafka and the ratio. Pure.

A figure is the headline's where that has it, with its ratio of pairs; else the grid's; else that of one node
or of three. Where two runs measure the same with unlike clients, the one with the headline's client is taken.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tabulate import tabulate

from bench.figures import kills
from bench.figures.tables import number
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
from bench.full.rows import MESSAGES_MB, median
from bench.page.prepared import ONE_NODE

Results = dict[str, dict[str, Any]]

RATE: Final = 2000
NODES: Final = {1: "one node", 3: "three nodes"}
SOURCES: Final = {"headline": "headline", "full": "grid", ONE_NODE: "one node", "nodes3": "three nodes"}
"""By kind of result: what the last column says."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table, and its source."""

    text: str
    source: str


Pick = Callable[[Results, Grid], "Cell | None"]


def _words(value: float, ours: float, theirs: float, marks: str = "") -> str:
    return f"**{value:.2f}** ({number(ours)} / {number(theirs)}){marks}"


def row_of(results: Results, kind: str, ratio: str) -> dict[str, Any] | None:
    """The row of a comparison that has figures; None where there is none."""
    rows = results.get(kind, {}).get("comparison", [])
    found = [row for row in rows if row.get("ratio") == ratio and row["value"] is not None]
    return found[0] if found else None


def comparison_pick(kind: str, ratio: str) -> Pick:
    """A figure of one of the comparisons."""

    def pick(results: Results, grid: Grid) -> Cell | None:
        row = row_of(results, kind, ratio)
        if row is None:
            return None
        return Cell(_words(row["value"], row["subject"], row["baseline"]), SOURCES[kind])

    return pick


def grid_pick(workload: str, nodes: int, promise: str, figure: str, **point: int) -> Pick:
    """A figure of the grid; words instead where a broker did not keep the rate that it was measured at."""

    def pick(results: Results, grid: Grid) -> Cell | None:
        pair = grid.pair(workload, nodes, promise, **point)
        if pair is None:
            return None
        late = [name for name, row in zip(("Lockstep", "Kafka"), pair, strict=True) if not keeps_rate(row)]
        ours, theirs = (median(row, figure) for row in pair)
        if late:
            rates = ", ".join(f"{median(row, 'requests_per_s') or 0:,.0f}" for row in pair)
            return Cell(f"{' and '.join(late)} did not keep the rate ({rates}/s)", SOURCES["full"])
        if ours is None or not theirs:
            return None
        judged = figure if figure == "p50_ms" or not point["rate"] else "p50_ms"
        apart = any(doubt(row, "requests_per_s" if not point["rate"] else judged) for row in pair)
        mark = f" {MARK}" if apart else ""
        return Cell(_words(ours / theirs, ours, theirs, mark), SOURCES["full"])

    return pick


def _row(title: str, nodes: int, picks: dict[str, list[Pick]]) -> tuple[str, dict[str, list[Pick]]]:
    return f"{NODES[nodes]}: {title}", picks


def _of_grid(
    title: str, workload: str, nodes: int, figure: str, **point: int
) -> tuple[str, dict[str, list[Pick]]]:
    return _row(
        title, nodes, {each: [grid_pick(workload, nodes, each, figure, **point)] for each in TARGET_PAIRS}
    )


def _rows(nodes: int) -> Iterable[tuple[str, dict[str, list[Pick]]]]:
    """Title and, by promise, where the figure may be from, the first that there is."""
    head, kind, end = ("", ONE_NODE, "") if nodes == 1 else ("n3.", "nodes3", ".g1")
    sixteen = {"partitions": 16, "producers": 16, "rate": 0}
    one = {"partitions": 1, "producers": 16, "rate": 0}
    picks = {
        BOTH: [comparison_pick("headline", f"{head}produce.flush")],
        FREE: [comparison_pick(kind, f"produce.os{end}")],
        CROSS: [comparison_pick("headline", f"{head}produce.cross")],
    }
    yield _row("throughput, 1 partition, 1 producer, MB/s", nodes, picks)
    title = "throughput, 16 partitions, 16 producers, MB/s"
    yield _of_grid(title, "throughput-1kb", nodes, MESSAGES_MB, **sixteen)
    picks = {each: [grid_pick("requests-1kb", nodes, each, "requests_per_s", **one)] for each in TARGET_PAIRS}
    picks[BOTH].insert(0, comparison_pick("headline", f"{head}latency16.rate.flush"))
    picks[CROSS].insert(0, comparison_pick("headline", f"{head}latency16.rate.cross"))
    yield _row("requests/s, 1 partition, 16 producers", nodes, picks)
    title = "requests/s, 16 partitions, 16 producers"
    yield _of_grid(title, "requests-1kb", nodes, "requests_per_s", **sixteen)
    for partitions in (1, 16):
        where = "1 partition" if partitions == 1 else f"{partitions} partitions"
        for quantile in ("p50", "p99"):
            point = {"partitions": partitions, "producers": 16, "rate": RATE}
            title = f"{quantile} at {RATE:,} requests/s, {where}, ms"
            yield _of_grid(title, "rate-1kb", nodes, f"{quantile}_ms", **point)
    title = "CPU s per million requests, 16 partitions, 16 producers"
    yield _of_grid(title, "requests-1kb", nodes, "cpu_s_per_million_records", **sixteen)


def _line(title: str, picks: dict[str, list[Pick]], results: Results, grid: Grid) -> list[str] | None:
    """The row of the table; None where nothing of it was measured."""
    cells: dict[str, Cell] = {}
    for promise, candidates in picks.items():
        found = [cell for cell in (pick(results, grid) for pick in candidates) if cell is not None]
        if found:
            cells[promise] = found[0]
    if not cells:
        return None
    texts = [cells[each].text if each in cells else "" for each in TARGET_PAIRS]
    return [title, *texts, _sources({promise: cell.source for promise, cell in cells.items()})]


def _sources(sources: dict[str, str]) -> str:
    """The source of most cells, and by name what is from others."""
    common, _ = Counter(sources.values()).most_common(1)[0]
    others = [f"{promise}: {source}" for promise, source in sources.items() if source != common]
    return "; ".join([common, *others])


def promised_table(results: Results, grid: Grid) -> str:
    """The figures that depend on flushing; empty where nothing was measured."""
    lines = [_line(title, picks, results, grid) for nodes in NODES for title, picks in _rows(nodes)]
    kept = [line for line in lines if line is not None]
    heads = ["Lockstep over Kafka (their figures)", *TARGET_PAIRS, "from"]
    return tabulate(kept, headers=heads, tablefmt="github", disable_numparse=True) if kept else ""


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
    return tabulate(lines, headers=heads, tablefmt="github", disable_numparse=True) if lines else ""


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
    heads = ["", "Lockstep", "Kafka", "ratio", "from"]
    return tabulate(lines, headers=heads, tablefmt="github", disable_numparse=True) if lines else ""


def _with_ends(middle: float, found: list[float]) -> str:
    """A median, and the lowest and highest of the sessions."""
    return f"{number(middle)} ({number(min(found))} to {number(max(found))})"


def section(results: Results, grid: Grid) -> str:
    """The beginning of docs/benchmarks.md; empty where nothing was measured."""
    made = promised_table(results, grid), whole_table(results, grid), tuned_table(grid)
    tables = "\n\n".join(text for text in made if text)
    return fill_text("short", tables=tables, mark=MARK) if tables else ""
