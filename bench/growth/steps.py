"""The steps of `python -m bench growth` on disk, and what they come to: lines, promises, what disturbed them.

Owns: the files, one a step, so that an interrupted run can be resumed. A slope
of 0 is flat, 1 is linear: the line through the logarithms of values and figures. Measures nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.figures import origins
from bench.figures.tables import text_table
from bench.growth.axes import AXES, FLAT, FULL, Axis, Lengths
from bench.kept import Unreadable, read

KIND = "growth"
DISTURBED = 0.25
"""Of a processor: figures beside so much other work are named."""
FAR = 10.0
"""Rounds that differ by more than this factor have no figure in common."""

Step = dict[str, Any]


def path_of(directory: Path, axis: Axis, value: int) -> Path:
    return directory / f"{axis.name}-{value}.json"


def step_of(directory: Path, axis: Axis, value: int, lengths: Lengths) -> Step | None:
    """The step's file; None where it is not there, or was measured with other lengths. Unreadable."""
    path = path_of(directory, axis, value)
    if not path.exists():
        return None
    found = read(path, "axis", "value", "lengths", "figures", "started", "code", "machine")
    return found if found["lengths"] == asdict(lengths) else None


def missing_figures(axis: Axis, step: Step) -> list[str]:
    """The figures of its axis that a step has not: it was measured before they were."""
    return [fitted.figure for fitted in axis.fitted if fitted.figure not in step["figures"]]


def is_whole(directory: Path, axis: Axis, value: int, lengths: Lengths) -> bool:
    """True if the step is there with all that is measured today; one that is not is measured again."""
    step = step_of(directory, axis, value, lengths)
    return step is not None and not missing_figures(axis, step)


def collect_steps(directory: Path, lengths: Lengths = FULL) -> dict[str, Any]:
    """All steps that are there, as one result for the page: `steps` by axis, and the newest step's facts.

    Raises MixedMachines where they are of several machines, Unreadable.
    """
    steps = {
        axis.name: [step for value in axis.values if (step := step_of(directory, axis, value, lengths))]
        for axis in AXES
    }
    found = [step for each in steps.values() for step in each]
    if not found:
        raise Unreadable(f"{directory} has no step of `python -m bench growth`")
    newest = max(found, key=lambda step: str(step["started"]))
    origins.check_machine(named_steps(found), newest["machine"])
    shared = {name: newest[name] for name in ("started", "code", "machine")}
    shared["commits"] = origins.commits_of(found)
    return {"kind": KIND, "command": "python -m bench growth", "failures": [], "steps": steps, **shared}


def named_steps(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    return [(f"{step['axis']} {step['value']:,}", step) for step in steps]


def fits(result: dict[str, Any]) -> list[list[str]]:
    """A row for each figure of each axis: first and last step, slope and its name, promise kept or MISSED."""
    rows = []
    for axis in AXES:
        steps = result["steps"].get(axis.name, [])
        for fitted in axis.fitted:
            figure = fitted.figure
            has = [each for each in steps if fitted.stays_flat or figure in each["figures"]]
            points = [(each["value"], each["figures"][figure]) for each in has]
            line = fit(points)
            if line is None:
                if fitted.stays_flat and steps:  # a promise is not dropped for want of figures
                    rows.append([axis.words, fitted.unit, "", "", "", "", "", "too few steps"])
                continue
            first, last = points[0], points[-1]
            verdict = ""
            if fitted.stays_flat:
                verdict = "met" if line.slope <= FLAT else "MISSED"
            rows.append(
                [
                    axis.words,
                    fitted.unit,
                    f"{first[1]:,.3g} at {first[0]:,}",
                    f"{last[1]:,.3g} at {last[0]:,}",
                    f"{line.slope:+.2f}",
                    line.word,
                    f"{line.r_squared:.2f}",
                    verdict,
                ]
            )
    return rows


def flat_slopes(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The slopes that have to stay flat, as rows with a goal."""
    return [
        {
            "title": f"{unit}, over {words}",
            "value": float(slope) if slope else None,
            "goal": "flat",
            "met": verdict == "met",
        }
        for words, unit, _, _, slope, _, _, verdict in fits(result)
        if verdict
    ]


HEADS = ["over", "", "first", "last", "slope", "", "R²", "stays flat"]


def table(result: dict[str, Any], style: str = "simple") -> str:
    return text_table(fits(result), HEADS, style)


def disturbed_steps(result: dict[str, Any]) -> list[str]:
    """The steps beside which other work used more of a processor than `DISTURBED`."""
    return [
        f"{step['value']:,} {axis.words} ({step['figures']['foreign_cpu_share']:.0%})"
        for axis in AXES
        for step in result["steps"].get(axis.name, [])
        if step["figures"].get("foreign_cpu_share", 0.0) > DISTURBED
    ]


def far_apart(result: dict[str, Any]) -> list[str]:
    """The figures whose rounds differ by more than `FAR`, with the lowest and the highest."""
    found = []
    for axis in AXES:
        for step in result["steps"].get(axis.name, []):
            for fitted in axis.fitted:
                values = [each[fitted.figure] for each in step.get("rounds", ()) if fitted.figure in each]
                if values and min(values) > 0 and max(values) > FAR * min(values):
                    ends = f"{min(values):.3g} and {max(values):.3g}"
                    found.append(f"{fitted.unit} at {step['value']:,} {axis.words}: {ends}")
    return found


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
