"""The seeds' figures beside ours, in one table: the figures of their papers, and the same measured here.
Pure.

Owns: which of our figures is compared with which of theirs, for seed 000 (LogPlayer) and seed 001 (LogStore);
seed 002 (Ziplog) is in `ziplog`, and seeds 003 and 004 (Waltz) state none. Their machines were larger.
"""

from __future__ import annotations

from typing import Any

from bench.figures import kills
from bench.figures.tables import text_table
from bench.figures.templates import fill_text
from bench.full.lookup import Grid
from bench.full.rows import median
from bench.logstore.tables import SEEDS_HEADLINES, relative_to_naive, runs_of
from bench.page.short import Results, lost_leader, row_of
from bench.player.points import CLOSED, OPEN, SEED
from bench.player.tables import seen_here

HEADS = ["seed", "figure", "the seed", "here", "measured by"]
Rows = list[list[str]]
ALL = 0.98
"""The share of the offered load from which on it counts as all of it."""


def _span(values: list[float], unit: str) -> str:
    low, high = min(values), max(values)
    return f"{low:,.2f} to {high:,.2f} {unit}".rstrip() if high > low else f"{low:,.2f} {unit}".rstrip()


def logstore_rows(result: dict[str, Any]) -> Rows:
    """Seed 001's figure 7, every payload flushed before it is acknowledged."""
    found: Rows = []

    def add(figure: str, here: str) -> None:
        found.append(["001", figure, SEEDS_HEADLINES[figure], here, "[logstore](benchmarks/logstore.md)"])

    naive = relative_to_naive(runs_of(result, "7a", True))
    if naive:
        written, space = ([each[name] for each in naive.values()] for name in ("written", "space"))
        add("7a", f"writes {_span(written, '')}, space {_span(space, '')} of the naive store's")
    batches = _of_size(result, "7b", 1024)
    if batches:
        rates = [run["figures"]["mb_per_s"] for run in batches]
        used = [run["figures"]["cpu_share"]["leader"] for run in batches]
        add(
            "7b",
            f"1 KB, all batch sizes: {_span(rates, 'MB/s')}{_offer_note(batches)}; the leader took "
            f"{max(used):.0%} to {min(used):.0%} of a CPU",
        )
    saturated = [run["figures"]["mb_per_s"] for run in _of_size(result, "7c", 4096)]
    if saturated:
        add("7c", f"4 KB: at most {max(saturated):,.1f} MB/s{_cap_note(max(saturated), result)}")
    replicas = _of_size(result, "7d", 1024)
    if replicas:
        rates = [run["figures"]["mb_per_s"] for run in replicas]
        words = f"1 KB, 1 to 5 replicas: {_span(rates, 'MB/s')}{_offer_note(replicas)}"
        larger = [f"{run['figures']['mb_per_s']:.1f}" for run in _of_size(result, "7d", 4096)]
        add("7d", words + (f"; 4 KB: {', '.join(larger)} MB/s" if larger else ""))
    return found


def _offer_note(runs: list[dict[str, Any]]) -> str:
    """A note where every run took the whole offered load, and so could not have taken more."""
    whole = all(run["figures"]["payloads_per_s"] >= ALL * run["load"]["rate"] for run in runs)
    return ", the whole offered load" if whole else ""


def _cap_note(highest: float, result: dict[str, Any]) -> str:
    """A note where a stream reached its cap, and so could not have taken more."""
    cap = result.get("stream_bytes_per_s", 0) / 1e6
    return f", the whole offered load (a stream's cap: {cap:.0f})" if cap and highest >= ALL * cap else ""


def _of_size(result: dict[str, Any], experiment: str, payload_bytes: int) -> list[dict[str, Any]]:
    runs = runs_of(result, experiment, True)
    return [run for run in runs if run["load"]["payload_bytes"] == payload_bytes]


def player_rows(result: dict[str, Any]) -> Rows:
    """Seed 000's figures 9 to 13."""
    found: Rows = []
    for seen in SEED:
        here = {loop: seen_here(result, seen, loop) for loop in (CLOSED, OPEN)}
        words = [f"{value:,.2f} ms, {loop} loop" for loop, value in here.items() if value is not None]
        if words:
            sign = "< " if seen.point is None else ""
            theirs = f"{seen.words}: {sign}{seen.ms:,.2f} ms"
            found.append(["000", seen.figure, theirs, "; ".join(words), "[player](benchmarks/player.md)"])
    return found


def section(by_kind: dict[str, dict[str, Any]]) -> str:
    """The section of docs/benchmarks.md about it; empty where nothing was measured."""
    rows: Rows = []
    if "player" in by_kind:
        rows += player_rows(by_kind["player"])
    if "logstore" in by_kind:
        rows += logstore_rows(by_kind["logstore"])
    rows += ziplog_rows(by_kind, Grid(by_kind.get("full")))
    if not rows:
        return ""
    note = "Seed 000's are not among this page's results: `python -m bench player` measures them."
    table = text_table(rows, HEADS)
    return fill_text("seeds", table=table, note="" if "player" in by_kind else note)


PAYLOAD_BYTES = 4096
MANY = {"partitions": 1, "producers": 64, "rate": 0}


def _one_client(results: Results) -> tuple[str, str]:
    row = row_of(results, "headline", "n3.latency1.p50.flush")
    if row is None:
        return "not measured", ""
    return f"one producer, 1 KB, three nodes, flushed: p50 {row['subject'] * 1000:,.0f} us", "headline"


def _many_clients(grid: Grid) -> tuple[str, str]:
    row = grid.row("requests-1kb", 3, "lockstep", **MANY)
    p50 = None if row is None else median(row, "p50_ms")
    if p50 is None:
        return "not measured", ""
    said = f"64 producers, 1 KB, three nodes, flushed: p50 {p50 * 1000:,.0f} us; clients and nodes share"
    return f"{said} the processors, and 256 were not measured", "grid"


def _rate(results: Results, grid: Grid) -> tuple[str, str]:
    said, where = [], []
    runs = runs_of(results["logstore"], "7c", True) if "logstore" in results else []
    rates = [run["figures"]["mb_per_s"] for run in runs if run["load"]["payload_bytes"] == PAYLOAD_BYTES]
    if rates:
        said.append(f"4 KB in batches into one log group: {max(rates) * 1e6 / PAYLOAD_BYTES:,.0f}/s at most")
        where.append("seed 001's experiments")
    row = grid.row("requests-10kb", 3, "lockstep", **MANY)
    answered = None if row is None else median(row, "requests_per_s")
    if answered is not None:
        said.append(f"one record of 10 KB a request, 64 producers: {answered:,.0f}/s")
        where.append("grid")
    return "; ".join(said) or "not measured", ", ".join(where)


def _failure(results: Results, grid: Grid) -> tuple[str, str]:
    lost = lost_leader(results, grid)
    if lost is None:
        return "not measured", ""
    return f"leader killed to the next acknowledgement: {kills.words(lost[0])}", lost[2]


def ziplog_rows(results: Results, grid: Grid) -> Rows:
    """A line for each figure of the seed; empty where neither the headline nor the grid was measured."""
    if "headline" not in results and "full" not in results:
        return []
    lines = [
        ("5", "one client: 150 us by the fast path, 220 us by the slow one", _one_client(results)),
        ("5", "1 to 256 clients: 150 to 200 us", _many_clients(grid)),
        ("4", "16.8 K records/s of 4 KB a shard, as its SSDs allow", _rate(results, grid)),
        (
            "-",
            "a failed server is noticed after 1 s, throughput a sixth lower until then",
            _failure(results, grid),
        ),
        ("-", "4,000 shards", ("not comparable: there is no membership service for shards here", "")),
    ]
    return [["002", figure, theirs, *ours] for figure, theirs, ours in lines]
