"""What the page says of transactions and of atomic appends."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.page.document import page
from bench.settings import FLUSH
from bench.transactions import atomic, command
from tests.bench.outcomes import FACTS


def _page(kind: str, compared: ModuleType, block: Mapping[str, Any], *failures: str) -> str:
    """Of a result in which both sides have this block. Args: compared: whose ratios and goals it has."""
    block = {
        "policy": FLUSH,
        "proven": True,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
        **block,
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    result = {
        "command": f"python -m bench {kind}",
        **FACTS,
        "failures": [*failures],
        "kind": kind,
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], compared.GOALS, compared.RATIOS),
        "sessions": sessions,
    }
    return page([result])


def test_the_page_tells_of_transactions() -> None:
    figures = {"p50_ms": 5.0, "commit_p50_ms": 3.0, "total_records": 100}
    block = {"name": "transaction10_one", "figures": figures}
    text = _page("transactions", command, block, "session 1: no")
    assert "## Transactions" in text and "Failed: session 1: no" in text
    assert "| transaction10_one | lockstep  | 5.00" in text


def test_the_page_tells_of_atomic_appends() -> None:
    block = {
        "name": f"atomic{atomic.WIDTH}_{command.ONE}",
        "figures": {"p50_ms": 5.0, "p99_ms": 9.0, "total_records": 1000},
        "writes": 100,
        "broker_cpu_s": 0.1,
        "group_commits": 100,
    }
    text = _page("atomic", atomic, block)
    assert "## Atomic appends" in text
    row = next(line for line in text.splitlines() if "| lockstep" in line)
    assert [cell.strip() for cell in row.split("|")[1:-1]][:4] == ["atomic10_one", "lockstep", "5.00", "9.00"]
