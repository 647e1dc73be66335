"""The spread of a cell's rounds, and the comparison of two cells by it. Pure.

Owns: the figures that are made of a block's own (megabytes of messages), and the two rules by which the grid
is read: rounds that differ by more than `FAR` mark their cell, and one cell is behind another only where
every round of it is worse than every round of the other.
"""

from __future__ import annotations

from typing import Any

from bench.figures.directions import more_is_better

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
