"""One node: its goals."""

from __future__ import annotations

from bench.one_node.goals import GOALS, RATIOS


def test_every_goal_has_its_ratio() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
