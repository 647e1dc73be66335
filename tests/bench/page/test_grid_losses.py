"""Where the grid loses, beyond its rounds' spread."""

from __future__ import annotations

from typing import Any

from bench.full.lookup import Grid
from bench.page import grid_losses
from tests.bench.full.kept_rows import rounds
from tests.bench.page.results import grid_of, grid_row


def test_the_grids_losses_are_counted_beyond_the_spread_and_their_means_have_all() -> None:
    def pair(producers: int, ours: tuple[float, ...], theirs: tuple[float, ...]) -> list[dict[str, Any]]:
        point = {"partitions": 1, "producers": producers, "rate": 0}
        return [
            grid_row("lockstep", point=point, **rounds("requests_per_s", *ours)),
            grid_row("kafka-flush", point=point, **rounds("requests_per_s", *theirs)),
        ]

    rows = [*pair(1, (90.0, 90.0), (100.0, 100.0)), *pair(16, (80.0, 110.0), (100.0, 100.0))]
    rows += pair(64, (400.0, 400.0), (100.0, 100.0))
    grid = grid_of(*rows)
    (line,) = (line for line in grid_losses.by_size(grid).splitlines() if "| 1 KB" in line)
    assert [cell.strip() for cell in line.split("|")[5:7]] == ["1 of 3, 1.51", "1.51"]
    assert [text.partition(" (")[2] for text in grid_losses.below_one(grid)] == [
        "0.90, beyond the rounds' spread)",
        "0.95, within the rounds' spread)",
    ]
    assert "1 of 3; 1.51" in grid_losses.short(grid)
    assert grid_losses.section(Grid(None)) == grid_losses.short(Grid(None)) == ""


def test_comparisons_of_rows_not_measured_in_turns_are_counted() -> None:
    point = {"partitions": 1, "producers": 1, "rate": 0}
    figures = rounds("requests_per_s", 1.0)
    ours, theirs = (grid_row(name, point=point, **figures) for name in ("lockstep", "kafka-flush"))
    assert grid_losses.in_turns(grid_of(ours, theirs)) == ""
    later = {**ours, "started": "2027-01-01T00:00:00Z"}
    shipped = grid_row("kafka", point=point, **figures, started=later["started"])
    said = "; 1 of 2 comparisons are of rows not measured in turns"
    assert grid_losses.in_turns(grid_of(later, theirs, shipped)) == said
