"""What is compared with what, which goals are met, and that nothing unproven is."""

from __future__ import annotations

from typing import Any

import pytest

from bench.figures.ratios import (
    BASELINE,
    SUBJECT,
    BadRequirement,
    Goal,
    block_medians,
    compare,
    parse_requirement,
)
from bench.kinds.headline import RATIOS as HEADLINE_RATIOS
from bench.kinds.nodes3 import RATIOS as NODES_RATIOS
from bench.kinds.one_node import GOALS, RATIOS
from bench.settings import FLUSH, OS
from tests.bench.outcomes import session


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
