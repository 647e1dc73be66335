"""What is compared with what, which goals are met, and what counts as proven."""

from __future__ import annotations

from typing import Any

import pytest

from bench.__main__ import Planned, plan_sessions
from bench.compare import (
    BASELINE,
    GOALS,
    RATIOS,
    SUBJECT,
    BadRequirement,
    Goal,
    compare,
    parse_requirement,
)
from bench.device import NoBlockDevice, flushes_needed, parse_counters
from bench.page.one_node import section as document
from bench.profile.command import folded_shares
from bench.rows import parse_producer_performance
from bench.session import RoundFailed
from bench.settings import FLUSH, OS, ROWS
from bench.tables import table

DISKSTATS = """\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 57092 9607 3320378 11668 8683 21026 1234296 2431 0 5188 14313 3657 13 275648 198 434 14
"""


def test_flushes_are_the_nineteenth_field() -> None:
    counters = parse_counters(DISKSTATS, "vda")
    assert (counters.flushes, counters.flush_ms) == (434, 14)
    assert (counters.writes, counters.write_bytes) == (8683, 1234296 * 512)
    with pytest.raises(NoBlockDevice, match="does not list"):
        parse_counters(DISKSTATS, "sdz")
    with pytest.raises(NoBlockDevice, match="does not count"):
        parse_counters(DISKSTATS.replace(" 434 14", ""), "vda")


def test_one_producer_needs_a_flush_for_every_write() -> None:
    assert flushes_needed(1000, 1) == pytest.approx(950)
    assert flushes_needed(1600, 16) == pytest.approx(95)


def _session(side: str, *blocks: tuple[str, str, dict[str, float], bool], rss: float = 0.0) -> dict[str, Any]:
    return {
        "side": side,
        "memory": {"rss_max_mb": rss} if rss else {},
        "blocks": [
            {"name": name, "policy": policy, "figures": figures, "proven": proven}
            for name, policy, figures, proven in blocks
        ],
    }


def _by_ratio(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["ratio"]: row for row in rows}


def test_policies_are_paired_and_crossed() -> None:
    sessions = [
        _session(
            BASELINE, ("produce", FLUSH, {"mb_per_s": 20.0}, True), ("produce", OS, {"mb_per_s": 60.0}, True)
        ),
        _session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 48.0}, True)),
        _session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 52.0}, True)),
        _session(SUBJECT, ("produce", OS, {"mb_per_s": 120.0}, True)),
    ]
    rows = _by_ratio(compare(sessions, []))
    assert rows["produce.flush"]["value"] == pytest.approx(2.5)
    assert rows["produce.cross"]["value"] == pytest.approx(50 / 60)
    assert rows["produce.os"]["value"] == pytest.approx(2.0)
    assert rows["produce.flush"]["subject_values"] == [48.0, 52.0]
    assert set(rows) == {"produce.flush", "produce.cross", "produce.os"}


def test_an_unproven_figure_is_never_compared() -> None:
    sessions = [
        _session(BASELINE, ("latency1", FLUSH, {"p50_ms": 0.5}, True)),
        _session(SUBJECT, ("latency1", FLUSH, {"p50_ms": 0.1}, False)),
    ]
    (row,) = compare(sessions, [Goal("latency1.p50.flush", "<=", 0.65)])
    assert (row["value"], row["met"]) == (None, False)


def test_memory_and_growth() -> None:
    sessions = [
        _session(
            BASELINE,
            ("latency1", FLUSH, {"p50_ms": 0.5}, True),
            ("partitions_one", FLUSH, {"p50_ms": 1.0}, True),
            rss=1000.0,
        ),
        _session(
            SUBJECT,
            ("latency1", FLUSH, {"p50_ms": 0.3}, True),
            ("partitions_one", FLUSH, {"p50_ms": 0.33}, True),
            rss=50.0,
        ),
    ]
    rows = _by_ratio(compare(sessions, list(GOALS)))
    assert rows["memory.max"]["value"] == pytest.approx(0.05)
    assert rows["memory.max"]["met"] is True
    assert rows["growth.one"]["value"] == pytest.approx(1.1)
    assert rows["growth.one"]["baseline_growth"] == pytest.approx(2.0)
    assert rows["partitions.one"]["value"] == pytest.approx(0.33)
    assert rows["restart"]["met"] is False


def test_requirements() -> None:
    assert parse_requirement("produce.flush >= 2.5") == [Goal("produce.flush", ">=", 2.5)]
    assert parse_requirement("goals") == list(GOALS)
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    for bad in ("produce.flush", "nonsense>=1", "produce.flush>2", ""):
        with pytest.raises(BadRequirement):
            parse_requirement(bad)
    assert Goal("restart", "<=", 0.2).met_by(0.2)
    assert not Goal("restart", "<=", 0.2).met_by(0.21)


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


TOOL_OUTPUT = """\
133011 records sent, 26602.2 records/sec (25.98 MB/sec), 892.9 ms avg latency, 1137.0 ms max latency.
300000 records sent, 42140.750105 records/sec (41.15 MB/sec), 635.59 ms avg latency, 1021.00 ms max latency, \
630 ms 50th, 891 ms 95th, 1002 ms 99th, 1017 ms 99.9th.
200000 steady state records sent, 45207.956600 records/sec (44.15 MB/sec), 577.95 ms avg latency, \
777.00 ms max latency, 543 ms 50th, 729 ms 95th, 770 ms 99th, 774 ms 99.9th.
"""


def test_the_steady_state_of_the_load_tool_is_what_counts() -> None:
    figures = parse_producer_performance(TOOL_OUTPUT)
    assert figures["total_records"] == 300_000
    assert figures["records_per_s"] == pytest.approx(45207.9566)
    assert figures["mb_per_s"] == pytest.approx(45207.9566 * 1024 / 1e6, rel=1e-3)
    with pytest.raises(RoundFailed):
        parse_producer_performance(TOOL_OUTPUT.splitlines()[0])


def test_the_table_and_the_page_show_ratio_goal_and_proof() -> None:
    sessions = [
        _session(BASELINE, ("produce", FLUSH, {"mb_per_s": 20.0}, True)),
        _session(SUBJECT, ("produce", FLUSH, {"mb_per_s": 30.0}, True)),
    ]
    for session, flushes in zip(sessions, (300, 100), strict=True):
        session["blocks"][0] |= {
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
        "comparison": compare(sessions, [Goal("produce.flush", ">=", 2.0)]),
        "sessions": sessions,
    }
    text = table(result)
    assert "1.50" in text
    assert "MISSED" in text
    page = document(result)
    assert "| produce | flush    | kafka    | 100" in page
    assert "3.000" in page


def test_folded_stacks_give_own_and_total_shares() -> None:
    own, total, samples = folded_shares(
        "main (m.py:3);turn (g.py:7);append 6\n"
        "main (m.py:3);turn (g.py:9) 3\n"
        "main (m.py:3);turn (g.py:1);turn (g.py:2) 1\n"
        "Thread._bootstrap (threading.py:1002);wait 90\n"
    )
    assert samples == 10
    assert (own["append"], own["turn (g.py)"], own["main (m.py)"]) == (6, 4, 0)
    assert (total["main (m.py)"], total["turn (g.py)"], total["append"]) == (10, 10, 6)
