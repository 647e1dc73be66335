"""The player's ratios and goals, the seed's points among them."""

from __future__ import annotations

import pytest

from bench.player.points import CLOSED, FULL, OPEN, PLAIN, TRANSACTIONS, Point
from bench.player.ratios import BOUND_MB, GOALS, RATIOS, ratio_name
from tests.bench.player.results import player_result


def test_every_point_of_the_seeds_figures_has_a_goal_at_equal_rates() -> None:
    assert {Point(each, 10) for each in (2, 5, 10, 20)} <= {*FULL.points}
    assert {Point(20, each) for each in (1, 10)} <= {*FULL.points}
    names = {goal.ratio for goal in GOALS}
    assert names <= RATIOS.keys() and len(names) == len(GOALS)
    assert {ratio_name(PLAIN, "p99", OPEN, point) for point in FULL.points} <= names
    of_one_node = {"throughput", "stalled.p99", "stalled.memory"}
    assert all(f".{OPEN}." in name or name in of_one_node for name in names)


def test_goals_are_judged_against_the_baseline_of_the_same_point() -> None:
    rows = {row["ratio"]: row for row in player_result()["comparison"]}
    assert len(rows) == len(RATIOS)
    name = ratio_name(PLAIN, "mean", OPEN, Point(20, 10))
    assert (rows[name]["value"], rows[name]["met"]) == (pytest.approx(0.4), True)
    assert not rows[ratio_name(PLAIN, "p99", OPEN, Point(20, 10))]["met"]
    assert rows[ratio_name(TRANSACTIONS, "mean", OPEN, Point(10, 10))]["met"]
    assert "met" not in rows[ratio_name(PLAIN, "mean", CLOSED, Point(20, 10))]
    assert rows["throughput"]["value"] == pytest.approx(1.2) and rows["throughput"]["met"]
    assert rows["stalled.p99"]["value"] == pytest.approx(1.1) and rows["stalled.p99"]["met"]
    assert rows["stalled.memory"]["value"] == pytest.approx(10 / BOUND_MB) and rows["stalled.memory"]["met"]
