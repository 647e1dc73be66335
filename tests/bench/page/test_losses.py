"""What counts as a loss, and what may be noise."""

from __future__ import annotations

from typing import Any

import pytest

from bench.figures.tables import table
from bench.full.lookup import Grid
from bench.kinds.headline import RATIOS
from bench.page import grid_losses
from bench.page.losses import is_lost, losses, section, short
from tests.bench.full.grid import rounds
from tests.bench.kinds.results import headline_result
from tests.bench.page.results import cells_by_title, grid_of, grid_row, ratio_row


def test_our_own_figures_are_not_another_brokers() -> None:
    result = headline_result([300.0, 300.0], 100.0)
    own = {"ratio": "x", "title": "growth", "unit": "MB", "subject": 2.0, "baseline": 1.0, "value": 2.0}
    before = section([result])
    result["comparison"] += [own | {"baseline_growth": 3.0}, own | {"title": "most", "bound": True}]
    assert section([result]) == before, "neither lost nor counted"
    shown = [[cell.strip() for cell in line.split("|")] for line in table(result, "github").splitlines()]
    assert [line[3] for line in shown[-2:]] == ["1, our own", "1, the bound"]


def test_without_losses_there_is_no_row_and_noise_is_marked() -> None:
    assert "Kafka is better in none of" in section([headline_result([300.0, 300.0], 100.0)])
    ((*_, noise), _) = losses([headline_result([70.0, 140.0], 104.0)])
    assert noise == "the interval holds 1"
    assert [row[-1] for row in losses([headline_result([90.0, 91.0], 100.0)])] == ["no", "no"]
    assert [row[-1] for row in losses([headline_result([90.0], 100.0)])] == ["no interval", "no interval"]
    assert section([]) == ""


def test_losses_in_short_have_a_line_for_each_kind_with_its_heaviest() -> None:
    lost = {"subject": "lockstep", "baseline": "kafka", "kind": "headline"}
    rows = [
        ratio_row("latency64.rate.cross", 0.4),
        ratio_row("latency16.rate.cross", 0.5),
        ratio_row("consume", 2.0),
    ]
    won = {**lost, "kind": "atomic", "comparison": [ratio_row("consume", 2.0)]}
    text = short([{**lost, "comparison": rows}, won])
    heaviest = f"{RATIOS['latency64.rate.cross'].title}: 0.40"
    assert cells_by_title(text)["headline"] == ["2 of 3", "2", heaviest]
    assert text.endswith("Kafka is better in none of the 1 ratios of atomic.")


def test_a_unit_without_a_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="more 'parsecs' better"):
        is_lost({"ratio": "run", "unit": "parsecs", "value": 12.0})


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
