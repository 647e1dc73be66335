"""The rows of the grid by what they are of: workload, nodes, target, point. Pure; measures nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from bench.full.rows import FAR, Row, is_apart, is_behind, median, values

SIZES: Final = ("100b", "1kb", "10kb", "100kb")
PARTITIONS: Final = (1, 16, 64)
PRODUCERS: Final = (1, 16, 64)
LOADS: Final = {"requests": "single messages", "throughput": "batches"}
"""By the first word of a workload's name: what a request carries."""
TARGET_PAIRS: Final = {
    "both flush": ("lockstep", "kafka-flush"),
    "neither flushes": ("lockstep-os", "kafka"),
    "durable vs as shipped": ("lockstep", "kafka"),
}
"""By promise: whose figure is divided by whose."""
BOTH, FREE, CROSS = TARGET_PAIRS
TUNED_PAIRS: Final = {
    "both flush, Kafka tuned": ("lockstep", "kafka-tuned-flush"),
    "neither flushes, Kafka tuned": ("lockstep-os", "kafka-tuned"),
}
"""The same beside a tuned Kafka, `bench/baselines/tuned.py`."""
BOTH_TUNED, FREE_TUNED = TUNED_PAIRS
_PAIRS: Final = TARGET_PAIRS | TUNED_PAIRS
RATE_KEPT: Final = 0.98
"""Of what was offered: a broker that serves less does not keep the rate, and its latency is a backlog's."""


class Grid:
    """Rows by cell. Args: result: what `section.gathered` gives; None has no rows."""

    def __init__(self, result: dict[str, Any] | None) -> None:
        rows = result["rows"] if result else []
        self._rows: dict[tuple[Any, ...], Row] = {
            self._key(row["workload"], row["nodes"], row["target"], row["point"]): row
            for row in rows
            if "medians" in row
        }

    @staticmethod
    def _key(workload: str, nodes: int, target: str, point: dict[str, int]) -> tuple[Any, ...]:
        return (workload, nodes, target, *sorted(point.items()))

    def row(self, workload: str, nodes: int, target: str, **point: int) -> Row | None:
        """The row of one cell; None where it was not measured, or failed."""
        return self._rows.get(self._key(workload, nodes, target, point))

    def pair(self, workload: str, nodes: int, promise: str, **point: int) -> tuple[Row, Row] | None:
        """Ours and Kafka's at one point, of a promise of the pairs above; None where one is missing."""
        ours, theirs = (self.row(workload, nodes, target, **point) for target in _PAIRS[promise])
        return None if ours is None or theirs is None else (ours, theirs)

    def closed_loops(
        self,
        load: str,
        nodes: int,
        promise: str,
        sizes: Sequence[str] = SIZES,
        partitions: Sequence[int] = PARTITIONS,
        producers: Sequence[int] = PRODUCERS,
    ) -> list[tuple[Row, Row]]:
        """Ours and Kafka's at each point of the workloads of a load that was measured."""
        found = [
            self.pair(f"{load}-{size}", nodes, promise, partitions=each, producers=many, rate=0)
            for size in sizes
            for each in partitions
            for many in producers
        ]
        return [pair for pair in found if pair is not None]


def ratio(pair: tuple[Row, Row], figure: str = "requests_per_s") -> float:
    """Ours over Kafka's. Raises ValueError where one has no such figure."""
    ours, theirs = (median(row, figure) for row in pair)
    if ours is None or not theirs:
        raise ValueError(f"{pair[0]['cell']} or {pair[1]['cell']} has no {figure}")
    return ours / theirs


def mean(pairs: Sequence[tuple[Row, Row]], figure: str = "requests_per_s") -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(ratio(pair, figure)) for pair in pairs) / len(pairs))


def behind(pairs: Sequence[tuple[Row, Row]]) -> int:
    """At how many points ours is behind beyond the rounds' spread, in requests a second."""
    figure = "requests_per_s"
    return sum(is_behind("/s", values(ours, figure), values(theirs, figure)) for ours, theirs in pairs)


def keeps_rate(row: Row) -> bool:
    """True if it served the offered rate; always where nothing is offered at a rate."""
    offered = row["point"].get("rate", 0)
    return bool((median(row, "requests_per_s") or 0.0) >= RATE_KEPT * offered)


def doubt(row: Row, figure: str) -> str:
    """The mark of a cell whose rounds are further apart than `FAR`; empty for others."""
    return MARK if is_apart(row, figure) else ""


MARK: Final = "~"
MARKED: Final = f"`{MARK}`: the rounds of this cell differ by more than a factor of {FAR:g}"
