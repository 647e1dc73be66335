"""What counts as a loss, and what may be noise."""

from __future__ import annotations

import pytest

from bench.figures.tables import table
from bench.kinds.headline import RATIOS
from bench.page.losses import is_lost, losses, section, short
from tests.bench.kinds.headline_results import headline_result
from tests.bench.page.results import cells_by_title, ratio_row


def test_our_own_figures_are_not_another_brokers() -> None:
    result = headline_result([300.0, 300.0], 100.0)
    own = {"ratio": "x", "title": "growth", "unit": "MB", "subject": 2.0, "baseline": 1.0, "value": 2.0}
    before = section([result])
    result["comparison"] += [own | {"baseline_growth": 3.0}, own | {"title": "most", "bound": True}]
    assert section([result]) == before, "neither lost nor counted"
    shown = [[cell.strip() for cell in line.split("|")] for line in table(result, "github").splitlines()]
    assert [line[3] for line in shown[-2:]] == ["1, our own", "1, the bound"]


def test_who_wins_everything_loses_nothing_and_noise_is_called_so() -> None:
    assert "In none of" in section([headline_result([300.0, 300.0], 100.0)])
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
    assert text.endswith("In none of 1 of atomic.")


def test_a_unit_without_a_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="more 'parsecs' better"):
        is_lost({"ratio": "run", "unit": "parsecs", "value": 12.0})
