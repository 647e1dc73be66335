"""The advice for Lockstep or for Kafka, from the kept figures alone. Pure.

A line is there only while the figures say so: what one does not win is no reason for it.
"""

from __future__ import annotations

from typing import Any

from bench.figures.tables import number
from bench.full.lookup import BOTH, CROSS, FREE, LOADS, Grid, behind, mean
from bench.page.losses import is_compared, is_lost
from bench.page.prepared import ONE_NODE
from bench.page.short import NODES, Results, row_of


def _single(grid: Grid) -> str:
    """Single messages on one node."""
    free, cross = (grid.closed_loops("requests", 1, each) for each in (FREE, CROSS))
    if not free or not cross or mean(free) >= 1:
        return ""
    return (
        f"**one node is enough, and the last writes may be lost with the machine.** Without flushes Kafka "
        f"answers {1 / mean(free):.1f} times as many single messages (geometric mean of {len(free)} cells of "
        f"the grid; Lockstep is behind in {behind(free)}), and {1 / mean(cross):.1f} times as many as a "
        "Lockstep that flushes."
    )


def _awaiting_producer(results: Results) -> str:
    """One producer that awaits each answer."""
    said = []
    for words, name in (("one node", "latency1.p50.cross"), ("three nodes", "n3.latency1.p50.cross")):
        row = row_of(results, "headline", name)
        if row is not None and is_lost(row):
            said.append(f"{number(row['baseline'])} ms to {number(row['subject'])} on {words}")
    if not said:
        return ""
    return (
        "**one client awaits each write, and needs no flush.** Kafka as shipped answers sooner than a "
        f"Lockstep that flushes, in the median {', '.join(said)}."
    )


def _many(grid: Grid) -> str:
    """Batches of many producers to one node."""
    many = grid.closed_loops("throughput", 1, FREE, producers=[64])
    few = grid.closed_loops("throughput", 1, FREE, producers=[1])
    if not many or not few or mean(many) >= 1:
        return ""
    return (
        f"**many producers send batches to one node without flushes.** With 64 of them Lockstep takes "
        f"{mean(many):.2f} of what Kafka takes; with one, {mean(few):.2f}."
    )


def _large(grid: Grid) -> str:
    """Batches of 100 KB of many producers to three nodes."""
    found = {
        each: grid.closed_loops("throughput", 3, each, ["100kb"], producers=[64]) for each in (FREE, BOTH)
    }
    if not all(found.values()) or mean(found[FREE]) >= 1:
        return ""
    lost = {each: mean(pairs) for each, pairs in found.items()}
    one = grid.closed_loops("throughput", 3, BOTH, ["100kb"], [1], [64])
    single = f" ({mean(one):.2f} into one partition)" if one else ""
    return (
        "**64 producers send messages of 100 KB to three nodes.** Lockstep takes "
        f"{lost[FREE]:.2f} of Kafka's where neither flushes, and only {lost[BOTH]:.1f} times as much where "
        f"both do{single}."
    )


def _players(results: Results) -> str:
    """The player beside plain consumers."""
    rows = [
        row
        for row in results.get("player", {}).get("comparison", [])
        if "to plain Kafka" in row.get("title", "") and "p99" in row["title"] and is_compared(row)
    ]
    lost = [row for row in rows if is_lost(row)]
    if not lost:
        return ""
    return (
        "**a record has to be soon at several consumers, not in order and once.** Plain Kafka's consumers "
        f"had the lower p99 in {len(lost)} of {len(rows)} points of [the player's comparison]"
        "(benchmarks/player.md)."
    )


ALWAYS = (
    "**you need what is [not there](limits.md)**, or many processors for one node: all of this was measured "
    "on {cpus}, and a Lockstep node answers on one event loop."
)


def _ahead(grid: Grid, nodes: int, promise: str) -> str:
    """The means of single messages and of batches, in words; empty where one is missing or not ahead."""
    said = []
    for load, words in LOADS.items():
        pairs = grid.closed_loops(load, nodes, promise)
        if not pairs or mean(pairs) <= 1:
            return ""
        said.append(f"{mean(pairs):.1f} times as many {words}")
    return f"{' and '.join(said)} on {NODES[nodes]}"


def _flush_cost(grid: Grid) -> str:
    """The cost of flushes for both."""
    said = [text for nodes in NODES if (text := _ahead(grid, nodes, BOTH))]
    if not said:
        return ""
    return f"**each write has to be on a disk before it is acknowledged.** {'; '.join(said)}, both flushing."


def _without_flushes(grid: Grid) -> str:
    """Three nodes without flushes."""
    said = _ahead(grid, 3, FREE)
    return f"**each write has to be on several nodes.** {said}, neither flushing." if said else ""


def _small(results: Results) -> str:
    """Memory and starts."""
    said = []
    memory, crowded = row_of(results, "headline", "memory"), row_of(results, ONE_NODE, "memory.max")
    if memory is not None and memory["value"] < 1:
        more = "" if crowded is None else f" ({crowded['value']:.2f} with 10,000 members of groups)"
        said.append(f"{memory['value']:.2f} of Kafka's memory{more}")
    restart = row_of(results, "headline", "restart")
    if restart is not None and restart["value"] < 1:
        said.append(f"{restart['value']:.2f} of its time from a kill -9 to an answer")
    if not said:
        return ""
    return f"**there is little memory, or it has to be back soon.** {', '.join(said)}, on one node."


def ahead(results: Results, grid: Grid) -> str:
    """The rows in which Lockstep is ahead; empty without one."""
    lines = [line for line in (_flush_cost(grid), _without_flushes(grid), _small(results)) if line]
    if not lines:
        return ""
    means = "Means are geometric, over all cells of the grid's closed loops, those that Kafka wins included."
    return f"{_list_section('Use Lockstep if', lines)}\n{means}\n"


def section(results: Results, grid: Grid) -> str:
    """The cases for Kafka instead; empty where nothing was compared with it."""
    lines = [_single(grid), _awaiting_producer(results), _many(grid), _large(grid), _players(results)]
    kept = [line for line in lines if line]
    if not kept:
        return ""
    cpus = _processors(results)
    kept.append(ALWAYS.format(cpus=cpus))
    return _list_section("Use Kafka instead if", kept)


def _list_section(title: str, lines: list[str]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {line}" for line in lines)]) + "\n"


def _processors(results: Results) -> str:
    """The machines' number of processors, in words."""
    found = sorted({_cpus(each) for each in results.values() if "machine" in each})
    return f"{' or '.join(map(str, found))} processors"


def _cpus(result: dict[str, Any]) -> int:
    return int(result["machine"]["cpus"])
