"""Three nodes: their section of the page, and its place there."""

from __future__ import annotations

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.nodes3.goals import GOALS, RATIOS
from bench.page.document import page
from bench.settings import FLUSH
from tests.bench.outcomes import FACTS


def test_the_page_has_a_section_of_each_kind() -> None:
    block = {
        "name": "latency16_1",
        "policy": FLUSH,
        "figures": {"requests_per_s": 100.0, "total_records": 1000},
        "proven": True,
        "writes": 1000,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
        "broker_cpu_s": 0.1,
        "group_commits": 100,
        "flushes_per_replica_and_commit": 1.0,
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    shared = {
        "command": "python -m bench",
        **FACTS,
        "failures": [],
    }
    nodes = {
        **shared,
        "kind": "nodes3",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "sessions": sessions,
    }
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {**shared, "kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    text = page([store, nodes])
    assert text.index("## Three nodes") < text.index("## Seed 001's experiments")
    assert "MISSED" in text
    row = next(line for line in text.splitlines() if "| lockstep" in line and "latency16_1" in line)
    assert [cell.strip() for cell in row.split("|")[4:9]] == ["1,000", "0.300", "100", "1.00", "3.00"]
    with pytest.raises(ValueError, match="one result of each kind"):
        page([nodes, nodes])
