"""Straight lines through logarithms, and their names."""

from __future__ import annotations

import pytest

from bench.growth.slopes import fit


@pytest.mark.parametrize(
    ("power", "word"),
    [(0.0, "flat"), (0.5, "below linear"), (1.0, "linear"), (2.0, "above linear"), (-0.5, "falls")],
)
def test_a_slope_is_the_power_and_has_a_name(power: float, word: str) -> None:
    line = fit([(x, 3.0 * x**power) for x in (1.0, 10.0, 100.0, 1000.0)])
    assert line is not None
    assert line.slope == pytest.approx(power, abs=1e-9)
    assert (line.word, line.points) == (word, 4)
    assert line.r_squared == pytest.approx(1.0)


def test_two_points_or_nothings_make_no_line() -> None:
    assert fit([(1.0, 1.0), (10.0, 2.0)]) is None
    assert fit([(1.0, 0.0), (10.0, 0.0), (100.0, 3.0)]) is None
    too_small = [(1.0, 0.001), (10.0, 0.001), (100.0, 0.001), (1000.0, 0.0)]
    assert fit(too_small) is None, "a step that was too small to measure is not left out of the line"
    scattered = fit([(1.0, 1.0), (10.0, 5.0), (100.0, 2.0), (1000.0, 50.0)])
    assert scattered is not None and scattered.r_squared > 0.5 and scattered.word == "below linear"
    scattered = fit([(1.0, 1.0), (10.0, 50.0), (100.0, 1.0), (1000.0, 50.0)])
    assert scattered is not None and 0 < scattered.r_squared < 0.5 and scattered.word == "no trend"
