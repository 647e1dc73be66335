"""One node: the order of sessions, its goals, and its section of the page."""

from __future__ import annotations

from bench.figures.ratios import BASELINE, SUBJECT, Goal, compare
from bench.figures.tables import table
from bench.one_node.command import Planned, plan_sessions
from bench.one_node.goals import GOALS, RATIOS
from bench.one_node.section import section
from bench.one_node.work import ROWS
from bench.settings import FLUSH, OS
from tests.bench.sessions import session


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


def test_every_goal_has_its_ratio() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)


def test_the_table_and_the_page_show_ratio_goal_and_proof() -> None:
    sessions = [
        session(BASELINE, ("produce", FLUSH, {"mb_per_s": 20.0}, True)),
        session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 30.0}, True)),
    ]
    for each, flushes in zip(sessions, (300, 100), strict=True):
        each["blocks"][0] |= {
            "writes": 100,
            "device": {"flushes": flushes, "flush_ms": 50, "write_bytes": 4_000},
            "broker_cpu_s": 0.01,
        }
    result = {
        "command": "python -m bench produce",
        "started": "2026-01-01T00:00:00Z",
        "subject": "lockstep",
        "baseline": "kafka",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {
            "processor": "P",
            "cpus": 2,
            "memory_gb": 8,
            "kernel": "6",
            "disk": {"device": "vda"},
            "file_system": "ext4",
            "python": "3.11",
            "java": "17",
            "kafka": "4.3.1",
        },
        "comparison": compare(sessions, [Goal("produce.flush", ">=", 2.0)], (), RATIOS),
        "sessions": sessions,
        "failures": ["session 2: it died\nat once"],
    }
    text = table(result)
    assert "1.50" in text
    assert "MISSED" in text
    page = section(result)
    assert page.endswith("Failed: session 2: it died\n")
    assert "| produce | flush    | kafka    | 100" in page
    assert "3.000" in page
