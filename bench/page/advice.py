"""The advice for Lockstep or for Kafka, from the kept figures alone. Pure.

A line (`bench/texts/advice.txt`) is there only while the figures support it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.figures.tables import number
from bench.figures.templates import fill_line
from bench.full.lookup import BOTH, CROSS, FREE, LOADS, Grid, behind, mean
from bench.page.losses import is_compared, is_lost
from bench.page.prepared import ONE_NODE
from bench.page.short import NODES, Results, row_of


def _reasons_for_kafka(results: Results, grid: Grid) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of the lines whose condition holds, and their values."""
    free, cross = (grid.closed_loops("requests", 1, each) for each in (FREE, CROSS))
    if free and cross and mean(free) < 1:
        cells = {"cells": len(free), "behind": behind(free)}
        yield "single", {"free": 1 / mean(free), "cross": 1 / mean(cross), **cells}
    said = []
    for words, name in (("one node", "latency1.p50.cross"), ("three nodes", "n3.latency1.p50.cross")):
        row = row_of(results, "headline", name)
        if row is not None and is_lost(row):
            said.append(f"{number(row['baseline'])} ms against {number(row['subject'])} ms on {words}")
    if said:
        yield "awaiting", {"said": ", ".join(said)}
    many, few = (grid.closed_loops("throughput", 1, FREE, producers=[count]) for count in (64, 1))
    if many and few and mean(many) < 1:
        yield "many", {"many": mean(many), "few": mean(few)}
    free, both = (
        grid.closed_loops("throughput", 3, each, ["100kb"], producers=[64]) for each in (FREE, BOTH)
    )
    if free and both and mean(free) < 1:
        one = grid.closed_loops("throughput", 3, BOTH, ["100kb"], [1], [64])
        single = f" ({mean(one):.2f} into one partition)" if one else ""
        yield "large", {"free": mean(free), "both": mean(both), "single": single}
    rows = [
        row
        for row in results.get("player", {}).get("comparison", [])
        if "to plain Kafka" in row.get("title", "") and "p99" in row["title"] and is_compared(row)
    ]
    if lost := sum(map(is_lost, rows)):
        yield "players", {"lost": lost, "points": len(rows)}


def _ahead(grid: Grid, nodes: int, promise: str) -> str:
    """The means of single messages and of batches, in words; empty where one is missing or not ahead."""
    said = []
    for load, words in LOADS.items():
        pairs = grid.closed_loops(load, nodes, promise)
        if not pairs or mean(pairs) <= 1:
            return ""
        said.append(f"{mean(pairs):.1f} times as many {words}")
    return f"{' and '.join(said)} on {NODES[nodes]}"


def _reasons_for_lockstep(results: Results, grid: Grid) -> Iterator[tuple[str, dict[str, Any]]]:
    if both := [text for nodes in NODES if (text := _ahead(grid, nodes, BOTH))]:
        yield "flush", {"said": "; ".join(both)}
    if free := _ahead(grid, 3, FREE):
        yield "replicas", {"said": free}
    said = []
    memory, crowded = row_of(results, "headline", "memory"), row_of(results, ONE_NODE, "memory.max")
    if memory is not None and memory["value"] < 1:
        more = "" if crowded is None else f" ({crowded['value']:.2f} with 10,000 members of groups)"
        said.append(f"{memory['value']:.2f} of Kafka's memory{more}")
    restart = row_of(results, "headline", "restart")
    if restart is not None and restart["value"] < 1:
        said.append(f"{restart['value']:.2f} of its time from a kill -9 to an acknowledgement")
    if said:
        yield "small", {"said": " and ".join(said)}


def _list_section(title: str, reasons: list[tuple[str, dict[str, Any]]]) -> str:
    lines = [f"- {fill_line('advice', name, **said)}" for name, said in reasons]
    return "\n".join([f"## {title}", "", *lines]) + "\n"


def ahead(results: Results, grid: Grid) -> str:
    """The rows in which Lockstep is ahead; empty without one."""
    reasons = list(_reasons_for_lockstep(results, grid))
    means = "Means are geometric and include all closed loops of the grid, also those that Kafka wins."
    return "\n".join([_list_section("Use Lockstep if", reasons), means, ""]) if reasons else ""


def section(results: Results, grid: Grid) -> str:
    """The cases for Kafka instead; empty where nothing was compared with it."""
    reasons = list(_reasons_for_kafka(results, grid))
    if not reasons:
        return ""
    cpus = sorted({int(each["machine"]["cpus"]) for each in results.values() if "machine" in each})
    reasons.append(("always", {"cpus": " or ".join(map(str, cpus))}))
    return _list_section("Use Kafka instead if", reasons)
