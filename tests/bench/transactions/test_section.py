"""What the page says of transactions and of atomic appends."""

from __future__ import annotations

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.page.document import page
from bench.settings import FLUSH
from bench.transactions import atomic, command
from tests.bench.outcomes import FACTS


def test_the_page_tells_of_transactions() -> None:
    block = {
        "name": "transaction10_one",
        "policy": FLUSH,
        "figures": {"p50_ms": 5.0, "commit_p50_ms": 3.0, "total_records": 100},
        "proven": True,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    result = {
        "command": "python -m bench transactions",
        **FACTS,
        "failures": ["session 1: no"],
        "kind": "transactions",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], command.GOALS, command.RATIOS),
        "sessions": sessions,
    }
    text = page([result])
    assert "## Transactions" in text and "Failed: session 1: no" in text
    assert "| transaction10_one | lockstep  | 5.00" in text


def test_the_page_tells_of_atomic_appends() -> None:
    block = {
        "name": f"atomic{atomic.WIDTH}_{command.ONE}",
        "policy": FLUSH,
        "figures": {"p50_ms": 5.0, "p99_ms": 9.0, "total_records": 1000},
        "proven": True,
        "writes": 100,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
        "broker_cpu_s": 0.1,
        "group_commits": 100,
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    result = {
        "command": "python -m bench atomic",
        **FACTS,
        "failures": [],
        "kind": "atomic",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], atomic.GOALS, atomic.RATIOS),
        "sessions": sessions,
    }
    text = page([result])
    assert "## Atomic appends" in text
    row = next(line for line in text.splitlines() if "| lockstep" in line)
    assert [cell.strip() for cell in row.split("|")[1:-1]][:4] == ["atomic10_one", "lockstep", "5.00", "9.00"]
