"""The losses of Lockstep in the grid's closed loops: the number of cells, and the mean. Pure."""

from __future__ import annotations

from typing import Any

from bench.figures.tables import text_table
from bench.figures.templates import fill_text
from bench.full.lookup import (
    BOTH,
    CROSS,
    FREE,
    LOADS,
    PARTITIONS,
    SIZES,
    TARGET_PAIRS,
    Grid,
    behind,
    mean,
    ratio,
)
from bench.full.rows import is_behind, values

WORDS = {"100b": "100 B", "1kb": "1 KB", "10kb": "10 KB", "100kb": "100 KB"}
Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


def _mean(pairs: Pairs) -> str:
    return f"{mean(pairs):.2f}" if pairs else ""


def _summary(pairs: Pairs) -> str:
    """Behind in how many, and the mean."""
    return f"{behind(pairs)} of {len(pairs)}, {_mean(pairs)}" if pairs else ""


def _sizes(grid: Grid, load: str, nodes: int, promise: str) -> str:
    """Behind in how many, the mean, and the means of the sizes."""
    pairs = grid.closed_loops(load, nodes, promise)
    if not pairs:
        return ""
    of_sizes = [grid.closed_loops(load, nodes, promise, [size]) for size in SIZES]
    means = [mean(each) for each in of_sizes if each]
    return f"{behind(pairs)} of {len(pairs)}, {_mean(pairs)} ({min(means):.2f} to {max(means):.2f})"


def _partitions(grid: Grid, load: str, nodes: int, sizes: tuple[str, ...] = SIZES) -> str:
    """The mean with 1, 16 and 64 partitions, both flushing."""
    pairs = [grid.closed_loops(load, nodes, BOTH, sizes, [each]) for each in PARTITIONS]
    return ", ".join(_mean(each) for each in pairs if each)


def short(grid: Grid) -> str:
    """A line for each number of nodes and load; empty without cells."""
    lines = []
    for nodes in (1, 3):
        for load, words in LOADS.items():
            both = grid.closed_loops(load, nodes, BOTH)
            if both:
                cells = [f"{behind(both)} of {len(both)}; {_partitions(grid, load, nodes)}"]
                cells = [_sizes(grid, load, nodes, FREE), *cells, _sizes(grid, load, nodes, CROSS)]
                lines.append([f"{nodes} node{'s' if nodes > 1 else ''}, {words}", *cells])
    if not lines:
        return ""
    heads = ["the grid", f"{FREE}: behind, mean (of sizes)", f"{BOTH}: behind; mean at 1, 16, 64 partitions"]
    heads.append(f"{CROSS}: behind, mean (of sizes)")
    return text_table(lines, heads)


def advantage(grid: Grid) -> str:
    """The advantage when both flush, by partitions, on one node; empty without cells."""
    said = []
    for partitions in ([1], [16, 64]):
        pairs = grid.closed_loops("requests", 1, BOTH, ["1kb"], partitions, [16, 64])
        if not pairs:
            return ""
        found = [ratio(pair) for pair in pairs]
        words = "1 partition" if partitions == [1] else " or ".join(map(str, partitions))
        said.append(f"{min(found):.1f} to {max(found):.1f} with {words}")
    return (
        "Where both flush, the ratio depends on the partitions. For single messages of 1 KB from 16 and "
        f"64 producers to one node it is {', '.join(said)}. Kafka flushes partitions concurrently; in "
        "Lockstep they share one log."
    )


def in_turns(grid: Grid) -> str:
    """The number of compared pairs that were not measured in turns, as a clause; empty where all were."""
    pairs = [
        pair
        for nodes in (1, 3)
        for load in LOADS
        for promise in TARGET_PAIRS
        for pair in grid.closed_loops(load, nodes, promise)
    ]
    apart = sum(ours.get("started") != theirs.get("started") for ours, theirs in pairs)
    return f"; in {apart} of {len(pairs)} comparisons the rows were not measured alternately" if apart else ""


def by_size(grid: Grid) -> str:
    """A line for each number of nodes, load and size; empty without cells."""
    lines = []
    for nodes in (1, 3):
        for load, words in LOADS.items():
            for size in SIZES:
                free, both, cross = (
                    grid.closed_loops(load, nodes, each, [size]) for each in (FREE, BOTH, CROSS)
                )
                if both:
                    cells = [_summary(free), _summary(both), _partitions(grid, load, nodes, (size,))]
                    lines.append([str(nodes), words, WORDS[size], *cells, _summary(cross)])
    if not lines:
        return ""
    heads = ["nodes", "load", "size", FREE, BOTH, f"{BOTH}: 1, 16, 64 partitions", CROSS]
    return text_table(lines, heads)


def below_one(grid: Grid) -> list[str]:
    """The cells in which a flushing Lockstep is below a flushing Kafka, whatever the spread."""
    found = []
    for nodes in (1, 3):
        for load in LOADS:
            for pair in grid.closed_loops(load, nodes, BOTH):
                if ratio(pair) < 1:
                    rates = [values(row, "requests_per_s") for row in pair]
                    beyond = "beyond" if is_behind("/s", rates[0], rates[1]) else "within"
                    found.append(f"{pair[0]['cell']} ({ratio(pair):.2f}, {beyond} the rounds' spread)")
    return found


def section(grid: Grid) -> str:
    """The full account; empty without cells."""
    table = by_size(grid)
    if not table:
        return ""
    below = below_one(grid)
    said = f"below 1 in {', '.join(below)}" if below else "nowhere below 1"
    return fill_text("grid_losses", table=table, said=said)
