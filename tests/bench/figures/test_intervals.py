"""Intervals over pairs, the noise floor, and what a goal's verdict rests on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.figures.intervals import interval_of, noise_floor, round_ratios, with_intervals
from bench.figures.ratios import (
    BASELINE,
    SUBJECT,
    BadRequirement,
    Goal,
    Ratio,
    block_medians,
    compare,
    parse_requirement,
)
from bench.figures.tables import table
from bench.kinds.headline import RATIOS as HEADLINE_RATIOS
from bench.kinds.nodes3 import RATIOS as NODES_RATIOS
from bench.kinds.one_node import GOALS, RATIOS
from bench.settings import FLUSH, OS
from tests.bench.outcomes import session
from tests.support.cases import each_case


def test_ratios_are_averaged_as_logarithms() -> None:
    found = interval_of([2.0, 0.5])
    assert found.value == pytest.approx(1.0)
    half = 12.706 * math.sqrt(2) * math.log(2) / math.sqrt(2)
    assert found.low == pytest.approx(math.exp(-half))
    assert found.high == pytest.approx(math.exp(half))


def test_equal_pairs_have_no_spread_and_one_pair_has_no_interval() -> None:
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


@each_case(
    ("rates", "met", "sure", "shown"),
    [
        ((30.0, 31.0, 29.0), True, True, "met"),
        ((19.0, 31.0, 22.0), True, False, "met?"),
        ((10.0, 11.0, 10.0), False, True, "MISSED"),
        ((10.0, 31.0, 10.0), False, False, "MISSED?"),
    ],
)
def test_a_verdict_shows_whether_the_interval_agrees(
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


def test_medians_are_of_proven_blocks_of_that_name_alone() -> None:
    sessions = [
        session("subject", ("hot1", FLUSH, {"rate": 1.0}, True), ("hot10", FLUSH, {"rate": 50.0}, True)),
        session("subject", ("hot1", FLUSH, {"rate": 3.0}, True)),
        session("subject", ("hot1", FLUSH, {"rate": 900.0}, False)),
    ]
    assert block_medians(sessions, "hot1") == {"rate": 2.0}
    assert block_medians(sessions, "hot2") == {}


def _by_ratio(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["ratio"]: row for row in rows}


def test_policies_are_paired_and_crossed() -> None:
    sessions = [
        session(
            BASELINE, ("produce", FLUSH, {"mb_per_s": 20.0}, True), ("produce", OS, {"mb_per_s": 60.0}, True)
        ),
        session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 48.0}, True)),
        session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 52.0}, True)),
        session(SUBJECT, ("produce", OS, {"mb_per_s": 120.0}, True)),
    ]
    rows = _by_ratio(compare(sessions, [], (), RATIOS))
    assert rows["produce.flush"]["value"] == pytest.approx(2.5)
    assert rows["produce.cross"]["value"] == pytest.approx(50 / 60)
    assert rows["produce.os"]["value"] == pytest.approx(2.0)
    assert rows["produce.flush"]["subject_values"] == [48.0, 52.0]
    assert set(rows) == {"produce.flush", "produce.cross", "produce.os"}


def test_an_unproven_figure_is_never_compared() -> None:
    sessions = [
        session(BASELINE, ("latency1", FLUSH, {"p50_ms": 0.5}, True)),
        session(SUBJECT, ("latency1", FLUSH, {"p50_ms": 0.1}, False)),
    ]
    (row,) = compare(sessions, [Goal("latency1.p50.flush", "<=", 0.65)], (), RATIOS)
    assert (row["value"], row["met"]) == (None, False)


def test_memory_and_growth() -> None:
    sessions = [
        session(
            BASELINE,
            ("latency1", FLUSH, {"p50_ms": 0.5}, True),
            ("partitions_one", FLUSH, {"p50_ms": 1.0}, True),
            rss=1000.0,
        ),
        session(
            SUBJECT,
            ("latency1", FLUSH, {"p50_ms": 0.3}, True),
            ("partitions_one", FLUSH, {"p50_ms": 0.33}, True),
            rss=50.0,
        ),
    ]
    rows = _by_ratio(compare(sessions, list(GOALS), (), RATIOS))
    assert rows["memory.max"]["value"] == pytest.approx(0.05)
    assert rows["memory.max"]["met"] is True
    assert rows["growth.one"]["value"] == pytest.approx(1.1)
    assert rows["growth.one"]["baseline_growth"] == pytest.approx(2.0)
    assert rows["partitions.one"]["value"] == pytest.approx(0.33)
    assert rows["restart"]["met"] is False


def test_requirements() -> None:
    assert parse_requirement("produce.flush >= 2.5", RATIOS, GOALS) == [Goal("produce.flush", ">=", 2.5)]
    assert parse_requirement("goals", RATIOS, GOALS) == list(GOALS)
    for bad in ("produce.flush", "nonsense>=1", "produce.flush>2", ""):
        with pytest.raises(BadRequirement):
            parse_requirement(bad, RATIOS, GOALS)
    assert Goal("restart", "<=", 0.2).met_by(0.2)
    assert not Goal("restart", "<=", 0.2).met_by(0.21)


def test_every_ratio_there_is_can_be_required() -> None:
    for ratios in (RATIOS, HEADLINE_RATIOS, NODES_RATIOS):
        for name in ratios:
            assert parse_requirement(f"{name}>=1", ratios, ()) == [Goal(name, ">=", 1.0)]
