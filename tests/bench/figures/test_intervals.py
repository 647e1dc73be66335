"""Intervals over pairs, the noise floor, and what a goal's verdict rests on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.figures.intervals import interval_of, noise_floor, round_ratios, with_intervals
from bench.figures.ratios import BASELINE, SUBJECT, Goal, Ratio, compare
from bench.figures.tables import table
from bench.settings import FLUSH, OS


def test_ratios_are_averaged_as_logarithms() -> None:
    found = interval_of([2.0, 0.5])
    assert found.value == pytest.approx(1.0)
    half = 12.706 * math.sqrt(2) * math.log(2) / math.sqrt(2)
    assert found.low == pytest.approx(math.exp(-half))
    assert found.high == pytest.approx(math.exp(half))


def test_equal_pairs_leave_no_doubt_and_one_pair_says_nothing() -> None:
    equal = interval_of([3.0, 3.0, 3.0])
    assert equal.low == pytest.approx(3.0)
    assert equal.high == pytest.approx(3.0)
    one = interval_of([3.0])
    assert (one.value, one.low, one.high) == (3.0, None, None)
    for bad in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="no interval"):
            interval_of(bad)


CROSS = Ratio("cross", "rate", "requests/s", "work.rate", (FLUSH, OS))
RATE = Ratio("rate", "rate", "requests/s", "work.rate", (FLUSH, FLUSH))


def _session(side: str, number: int, **rates: float) -> dict[str, Any]:
    blocks = [
        {"name": "work", "policy": policy, "figures": {"rate": rate}, "proven": True}
        for policy, rate in rates.items()
    ]
    return {"side": side, "round": number, "memory": {}, "blocks": blocks}


def test_pairs_are_of_one_round_and_a_round_without_one_side_is_none() -> None:
    sessions = [
        _session(BASELINE, 0, flush=10.0),
        _session(SUBJECT, 0, flush=30.0),
        _session(SUBJECT, 1, flush=40.0),
        _session(BASELINE, 1, flush=10.0),
        _session(BASELINE, 2, flush=10.0),
    ]
    assert round_ratios(sessions, RATE) == [3.0, 4.0]
    assert round_ratios(sessions, CROSS) == []


def test_the_noise_floor_is_of_neighbours_of_one_side() -> None:
    sessions = [
        _session(BASELINE, 0, flush=10.0),
        _session(SUBJECT, 0, flush=30.0),
        _session(SUBJECT, 1, flush=33.0),
        _session(BASELINE, 1, flush=10.0),
        _session(BASELINE, 2, flush=8.0),
    ]
    assert noise_floor(sessions, RATE) == pytest.approx(1.25)
    assert noise_floor(sessions[:2], RATE) is None


@pytest.mark.parametrize(
    ("rates", "met", "sure", "shown"),
    [
        ((30.0, 31.0, 29.0), True, True, "met"),
        ((19.0, 31.0, 22.0), True, False, "met?"),
        ((10.0, 11.0, 10.0), False, True, "MISSED"),
        ((10.0, 31.0, 10.0), False, False, "MISSED?"),
    ],
)
def test_a_verdict_says_whether_the_interval_agrees(
    rates: tuple[float, ...], met: bool, sure: bool, shown: str
) -> None:
    sessions = [_session(BASELINE, number, flush=10.0) for number in range(3)]
    sessions += [_session(SUBJECT, number, flush=rate) for number, rate in enumerate(rates)]
    goal = Goal("rate", ">=", 2.0)
    ratios = {"rate": RATE}
    (row,) = with_intervals(compare(sessions, [goal], (), ratios), sessions, ratios, {"rate": goal})
    assert (row["met"], row["sure"]) == (met, sure)
    text = table({"subject": "lockstep", "baseline": "kafka", "comparison": [row]})
    assert shown in text.split() and "95 %" in text


def test_a_required_ratio_without_figures_is_missed_in_the_wide_table_too() -> None:
    sessions = [_session(BASELINE, 0, flush=10.0), _session(SUBJECT, 0, flush=30.0)]
    required = [Goal("cross", ">=", 2.0)]
    ratios = {"rate": RATE, "cross": CROSS}
    rows = with_intervals(compare(sessions, required, (), ratios), sessions, ratios, {})
    assert [row.get("met") for row in rows] == [None, False]
    text = table({"subject": "lockstep", "baseline": "kafka", "comparison": rows})
    assert "no figures" in text and "MISSED" in text
