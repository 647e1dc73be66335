"""The confidence of ratios: 95 % intervals over pairs of sessions, and the noise floor of either side. Pure.

Owns: which sessions make a pair, and the arithmetic. A pair is the two sides' sessions of one round,
neighbours in time; its ratio is of the medians within each session. Ratios are averaged as logarithms, so
that 2 and 1/2 cancel, and the interval is Student's over the pairs. The noise floor comes from A/A pairs: in
ABBA order each second neighbour is of the same side, in a fresh directory and process, and should differ by
nothing.

Invariant: one pair has no interval, and none is made up for it. Does not know what is measured.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures.ratios import BASELINE, SUBJECT, Goal, Ratio, values_of

Sessions = Sequence[dict[str, Any]]
Key = tuple[str, str, str]

STUDENT_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t at 0.975 for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook, table 1.3.6.7.2)."""
NORMAL_975 = 1.96


@dataclass(frozen=True)
class Interval:
    """A ratio with the ends of its 95 % interval; no ends where there was one pair only."""

    value: float
    low: float | None
    high: float | None
    pairs: tuple[float, ...]


def interval_of(ratios: Sequence[float]) -> Interval:
    """The geometric mean of the pairs' ratios. Raises ValueError where there is none, or one not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"no interval of {list(ratios)}")
    logarithms = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logarithms)
    if len(ratios) == 1:
        return Interval(ratios[0], None, None, tuple(ratios))
    degrees = len(ratios) - 1
    student = STUDENT_975[degrees - 1] if degrees <= len(STUDENT_975) else NORMAL_975
    half = student * statistics.stdev(logarithms) / math.sqrt(len(ratios))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), tuple(ratios))


def _sides_of(ratio: Ratio) -> tuple[Key, Key]:
    """The keys of the subject's and the baseline's figures; own growth is not paired."""
    return (
        (SUBJECT, ratio.figure, ratio.policies[0]),
        (BASELINE, ratio.against or ratio.figure, ratio.policies[1]),
    )


def _median_of(session: dict[str, Any], key: Key) -> float | None:
    found = values_of([session])
    return statistics.median(found[key]) if key in found else None


def round_ratios(sessions: Sessions, ratio: Ratio) -> list[float]:
    """The ratio of each round that both sides measured, in order. Sessions carry their `round`."""
    subject, baseline = _sides_of(ratio)
    by_round: dict[int, dict[str, float]] = {}
    for session in sessions:
        key = subject if session["side"] == SUBJECT else baseline
        value = _median_of(session, key)
        if value:
            by_round.setdefault(session["round"], {})[session["side"]] = value
    return [values[SUBJECT] / values[BASELINE] for _, values in sorted(by_round.items()) if len(values) == 2]


def noise_floor(sessions: Sessions, ratio: Ratio) -> float | None:
    """The largest distance of two neighbours of one side, as a factor above 1; None without neighbours."""
    furthest: list[float] = []
    for key in _sides_of(ratio):
        for one, next_one in itertools.pairwise(sessions):
            if one["side"] != key[0] or next_one["side"] != key[0]:
                continue
            before, after = _median_of(one, key), _median_of(next_one, key)
            if before and after:
                furthest.append(max(before / after, after / before))
    return max(furthest) if furthest else None


def with_intervals(
    rows: list[dict[str, Any]], sessions: Sessions, ratios: Mapping[str, Ratio], goals: Mapping[str, Goal]
) -> list[dict[str, Any]]:
    """Rows of `ratios.compare` with intervals: `value` and `met` are of the pairs from now on.

    `sure` is true if the whole interval meets the goal, or misses it; `noise` is the noise floor.
    """
    return [_with_interval(row, sessions, ratios[row["ratio"]], goals.get(row["ratio"])) for row in rows]


def _with_interval(
    row: dict[str, Any], sessions: Sessions, ratio: Ratio, goal: Goal | None
) -> dict[str, Any]:
    found = [] if ratio.own or ratio.bound else round_ratios(sessions, ratio)
    if not found:
        return row
    interval = interval_of(found)
    more: dict[str, Any] = {
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "pairs": list(interval.pairs),
        "noise": noise_floor(sessions, ratio),
    }
    if goal is not None:
        met = goal.met_by(interval.value)
        ends = [interval.value if end is None else end for end in (interval.low, interval.high)]
        same = all(goal.met_by(end) == met for end in ends)
        more |= {"goal": str(goal), "met": met, "sure": interval.low is not None and same}
    return {**row, **more}
