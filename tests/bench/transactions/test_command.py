"""Transactions measured: the order of sessions, and what is compared with what."""

from __future__ import annotations

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.settings import FLUSH
from bench.transactions.command import GOALS, ONE, RATIOS, SPREAD, Planned, main, plan_sessions
from tests.bench.outcomes import session


def test_kafka_stands_between_lockstep_with_one_group_and_with_its_default() -> None:
    one, spread = (Planned(SUBJECT, "lockstep", (groups,)) for groups in (ONE, SPREAD))
    kafka = Planned(BASELINE, "kafka", (ONE, SPREAD))
    assert plan_sessions("lockstep", "kafka", 2) == [one, kafka, spread, spread, kafka, one]


def test_every_goal_has_its_ratio_and_groups_are_not_mixed() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(
            BASELINE,
            ("transaction1_one", FLUSH, {"p50_ms": 48.0}, True),
            ("transaction1_spread", FLUSH, {"p50_ms": 50.0}, True),
        ),
        session(
            SUBJECT,
            ("transaction1_one", FLUSH, {"p50_ms": 4.0}, True),
            ("transaction1_spread", FLUSH, {"p50_ms": 20.0}, True),
        ),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["transactions.p50.1.one"]["value"], rows["transactions.p50.1.one"]["met"]) == (
        pytest.approx(1 / 12),
        True,
    )
    assert (rows["transactions.p50.1.spread"]["value"], rows["transactions.p50.1.spread"]["met"]) == (
        pytest.approx(0.4),
        False,
    )
    assert "transactions.p50.10.one" not in rows


def test_an_unknown_requirement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--require", "transactions.p50.7.one<=1"])
    assert "transactions.p50.10.spread" in capsys.readouterr().err
