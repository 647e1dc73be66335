"""The player's figures beside the seed's."""

from __future__ import annotations

import json

from bench.figures.ratios import compare
from bench.page.document import page
from bench.player import tables
from bench.player.backlogs import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from bench.player.command import Player, notes
from bench.player.points import (
    FULL,
    GOALS,
    OPEN,
    PLAIN,
    RATIOS,
    Point,
    ratio_name,
)
from bench.player.sessions import STALLED
from compat_tests.targets import ROOT
from tests.bench.kinds.results import made


def test_every_point_of_the_seeds_figures_has_a_goal_at_equal_rates() -> None:
    assert {Point(each, 10) for each in (2, 5, 10, 20)} <= {*FULL.points}
    assert {Point(20, each) for each in (1, 10)} <= {*FULL.points}
    names = {goal.ratio for goal in GOALS}
    assert names <= RATIOS.keys() and len(names) == len(GOALS)
    assert {ratio_name(PLAIN, "p99", OPEN, point) for point in FULL.points} <= names
    of_one_node = {"throughput", "stalled.p99", "stalled.memory"}
    assert all(f".{OPEN}." in name or name in of_one_node for name in names)


def test_a_run_of_the_target_that_stands_still_has_a_section_of_its_own() -> None:
    assert (made(Player).kind, made(Player, STALLED).kind) == ("player", "player_stalled")
    path = ROOT / "bench" / "results" / "full" / "player" / "3n-player.json"
    (whole,) = (block["result"] for block in json.loads(path.read_text())["rounds"])
    text = page([whole | {"notes": ["slow"], "failures": ["lost"]}])
    assert "two_level" in text and "- slow" in text and "- lost" in text
    names = (OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY)
    blocks = [each for session in whole["sessions"] for each in session["blocks"] if each["name"] in names]
    sessions = [{**whole["sessions"][-1], "blocks": blocks}]
    rows = compare(sessions, [], GOALS, RATIOS)
    assert {row["ratio"] for row in rows} == {"stalled.p99", "stalled.memory"}
    text = page([whole | {"kind": "player_stalled", "sessions": sessions, "comparison": rows}])
    assert "a fourth target is stopped" in text and "two_level" not in text


def test_a_rate_that_was_not_kept_does_not_count_and_is_reported() -> None:
    figures = {"player_mean_ms": 0.1, "per_s": 20.0}
    assert tables.calm_rate([(20.0, figures), (25.0, figures)]) == 20.0
    blocks = [
        {"name": f"{system}_open_t2_k10", "figures": {"per_s": 7.0 + len(system)}} for system in ("", "x")
    ]
    (said,) = notes([{"blocks": blocks}], {"rate": 8.0})
    assert said == "_open_t2_k10: 7.0 transactions/s of 8"
