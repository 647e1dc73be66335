"""Three nodes: what is compared with what, and the goals."""

from __future__ import annotations

import pytest

from bench.figures.ratios import ANY, BASELINE, SUBJECT, compare
from bench.nodes3.goals import GOALS, RATIOS
from bench.settings import FLUSH
from tests.bench.outcomes import session


def test_every_goal_has_its_ratio_and_groups_are_not_mixed() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(
            BASELINE,
            ("latency16_1", FLUSH, {"requests_per_s": 100.0}, True),
            ("latency16_3", FLUSH, {"requests_per_s": 50.0}, True),
            ("loss_1", ANY, {"first_ack_s": 8.0}, True),
        ),
        session(
            SUBJECT,
            ("latency16_1", FLUSH, {"requests_per_s": 500.0}, True),
            ("latency16_3", FLUSH, {"requests_per_s": 150.0}, True),
            ("loss_1", ANY, {"first_ack_s": 0.8}, True),
        ),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["latency16.rate.flush.g1"]["value"], rows["latency16.rate.flush.g1"]["met"]) == (5.0, True)
    assert (rows["latency16.rate.flush.g3"]["value"], rows["latency16.rate.flush.g3"]["met"]) == (3.0, False)
    assert rows["loss.g1"]["value"] == pytest.approx(0.1)
    assert rows["resume.g1"]["value"] == pytest.approx(0.8)
    assert "loss.g3" not in rows
