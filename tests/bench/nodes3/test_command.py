"""Three nodes: the order of sessions."""

from __future__ import annotations

from bench.figures.ratios import BASELINE, SUBJECT
from bench.nodes3.command import Planned, plan_sessions
from bench.settings import FLUSH, OS


def test_sessions_alternate_and_mirror() -> None:
    plan = plan_sessions("lockstep", "kafka", (FLUSH, OS), (1, 3), 2)
    kafka = Planned(BASELINE, "kafka", (FLUSH, OS), (1, 3))
    ours = [Planned(SUBJECT, "lockstep", (policy,), (shape,)) for policy in (FLUSH, OS) for shape in (1, 3)]
    assert plan == [kafka, *ours, *ours[::-1], kafka]
