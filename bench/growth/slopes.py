"""The growth of a figure: a straight line through the logarithms of values and figures. Pure.

A slope of 0 is flat, 1 is linear; figures grow as value ** slope. Least squares, all steps alike. Where a
figure is 0 at some step it was too small to measure, and there is no line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.growth.axes import FLAT

LINEAR = 0.15
"""Within this of 1 a slope is called linear."""
EXPLAINED = 0.5
"""A line that is not flat and explains less of the spread than this is no trend."""


@dataclass(frozen=True)
class Fit:
    """`slope` of log(figure) over log(value); `r_squared`: the share of the spread that the line explains."""

    slope: float
    r_squared: float
    points: int

    @property
    def word(self) -> str:
        if abs(self.slope) <= FLAT:
            return "flat"
        if self.r_squared < EXPLAINED:
            return "no trend"
        if self.slope < 0:
            return "falls"
        if self.slope < 1 - LINEAR:
            return "below linear"
        return "linear" if self.slope <= 1 + LINEAR else "above linear"


def fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """The line through (value, figure) pairs; None where a figure is not above zero, or fewer than three
    values are."""
    if any(y <= 0 for _, y in points):
        return None
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0]
    if len(logs) < 3 or len({x for x, _ in logs}) < 2:
        return None
    xs, ys = [x for x, _ in logs], [y for _, y in logs]
    line = statistics.linear_regression(xs, ys)
    spread = sum((y - statistics.fmean(ys)) ** 2 for y in ys)
    rest = sum((y - line.slope * x - line.intercept) ** 2 for x, y in logs)
    return Fit(line.slope, 1.0 if spread == 0 else 1 - rest / spread, len(logs))
