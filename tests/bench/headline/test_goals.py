"""The headline's goals and ratios."""

from __future__ import annotations

from bench.headline.goals import GOALS, RATIOS
from bench.page.losses import is_lost


def test_every_goal_has_its_ratio_and_every_ratio_a_direction() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    assert len(GOALS) == len({goal.ratio for goal in GOALS}) == 15
    for ratio in RATIOS.values():
        is_lost({"ratio": ratio.name, "unit": ratio.unit, "value": 1.0})
