"""One node: the order of sessions."""

from __future__ import annotations

from bench.figures.ratios import BASELINE, SUBJECT
from bench.one_node.command import Planned, plan_sessions
from bench.one_node.work import ROWS
from bench.settings import FLUSH, OS


def test_sessions_alternate_and_mirror() -> None:
    plan = plan_sessions("lockstep", "kafka", (FLUSH, OS), 2, frozenset(ROWS))
    kafka = Planned(BASELINE, "kafka", (FLUSH, OS), True)
    flushing = Planned(SUBJECT, "lockstep", (FLUSH,), True)
    free = Planned(SUBJECT, "lockstep", (OS,), False)
    assert plan == [kafka, flushing, free, free, flushing, kafka]


def test_a_session_without_work_is_not_planned() -> None:
    plan = plan_sessions("lockstep", "lockstep", (FLUSH, OS), 1, frozenset({"consume"}))
    assert [(each.side, each.policies) for each in plan] == [(BASELINE, (FLUSH,)), (SUBJECT, (FLUSH,))]
    (_, os_only) = plan_sessions("lockstep", "kafka", (OS,), 1, frozenset({"restart"}))
    assert os_only == Planned(SUBJECT, "lockstep", (OS,), True)
