"""One node: its table, and its section of the page."""

from __future__ import annotations

from bench.figures.ratios import BASELINE, SUBJECT, Goal, compare
from bench.figures.tables import table
from bench.one_node.goals import RATIOS
from bench.one_node.section import section
from bench.settings import FLUSH
from tests.bench.outcomes import FACTS, session


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
        "subject": "lockstep",
        "baseline": "kafka",
        **FACTS,
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
