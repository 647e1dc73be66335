"""The player's figures beside the seed's."""

from __future__ import annotations

import pytest

from bench.figures.ratios import compare
from bench.page.document import page
from bench.player import tables
from bench.player.backlogs import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from bench.player.command import Player, notes
from bench.player.points import (
    BOUND_MB,
    CLOSED,
    FULL,
    GOALS,
    OPEN,
    PLAIN,
    RATIOS,
    SEED,
    TRANSACTIONS,
    Point,
    ratio_name,
)
from bench.player.sessions import STALLED
from tests.bench.kinds.results import made
from tests.bench.outcomes import FACTS
from tests.bench.player.results import delay_block, player_result


def test_the_seeds_bounds_stand_beside_our_highest() -> None:
    result = player_result()
    average = next(seen for seen in SEED if seen.figure == "9a")
    assert tables.seen_here(result, average, OPEN) == pytest.approx(0.4)
    assert tables.calm_rate(tables.sustained_rates(result)[2]) == 100.0
    slow = [(25.0, {"player_mean_ms": 0.1, "per_s": 20.0})]
    assert tables.calm_rate(slow) == 0.0, "a rate that was not kept does not count"
    text = tables.summary(result)
    assert "11,260.00" in text and "9,000.00" in text and "60,000" in text
    assert "off" in text and "499" in text


def test_a_run_of_the_target_that_stands_still_has_a_section_of_its_own() -> None:
    assert (made(Player).kind, made(Player, STALLED).kind) == ("player", "player_stalled")
    result = player_result()
    names = (OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY)
    whole = [each for each in result["sessions"][2]["blocks"] if each["name"] in names]
    sessions = [{**result["sessions"][2], "blocks": whole}]
    alone = result | FACTS | {"kind": "player_stalled", "command": "c", "sessions": sessions}
    text = page([alone | {"comparison": compare(sessions, [], GOALS, RATIOS)}])
    assert "a fourth target is stopped" in text and "from 60 MB to 70 MB at most" in text
    assert "1.10" in text and "met" in text


def test_the_page_has_everything_that_was_measured() -> None:
    kept = {"kind": "player", "command": "python -m bench player", "notes": ["slow"], "failures": ["lost"]}
    text = page([{**player_result(), **FACTS, **kept}])
    assert "two_level" in text and "- slow" in text and "- lost" in text
    assert "apply delay, average, 20 targets, 10 KB, open loop, to plain Kafka" in text


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


def test_an_open_loop_that_was_too_slow_is_told() -> None:
    result = player_result()
    assert notes(result["sessions"], result["axes"]) == []
    (said,) = notes([{"blocks": [delay_block("transactions_open_t2_k10", 30.0, per_s=7.0)]}], result["axes"])
    assert said == "transactions_open_t2_k10: 7.0 transactions/s of 8"
