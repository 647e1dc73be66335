"""Seed 002's figures (Ziplog's evaluation) beside what is measured here that comes nearest. Pure.

Owns: what compares, and what does not, in words. Ziplog's records are of 4 KB, its nodes are machines of
their own, and an insert is acknowledged by all of a shard's servers after two or three message delays.
"""

from __future__ import annotations

from bench.figures import kills
from bench.full.lookup import Grid
from bench.full.spread import median
from bench.logstore.tables import runs_of
from bench.page.short import Results, lost_leader, row_of

Rows = list[list[str]]

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


def rows(results: Results, grid: Grid) -> Rows:
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
