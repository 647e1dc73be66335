"""The sections of the pages: each comparison is there, and what speaks against its figures is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.figures.templates import TEXTS, fill_text
from bench.kinds.nodes3 import Nodes3
from bench.page.document import page
from bench.page.headline_plots import draw, panels_of, times_better
from bench.page.losses import losses
from bench.runner import Comparison
from bench.settings import FLUSH
from tests.bench.kinds.results import headline_result
from tests.bench.outcomes import FACTS


def test_the_page_begins_with_the_headline_and_has_the_losses() -> None:
    result = headline_result([90.0, 95.0, 91.0], 100.0)
    text = page([result])
    assert text.startswith("# Benchmarks\n") and text.count("\n# Benchmarks: ") == text.count("\n# ")
    assert text.index("0 of 15 goals met") < text.index("## Where Lockstep loses")
    (line,) = (line for line in text.splitlines() if "| os" in line and "| lockstep" in line)
    assert [cell.strip() for cell in line.split("|")[4:11]] == [
        "3,000",
        "0.016",
        "0.06",
        "0.064",
        "50",
        "",
        "97%",
    ]
    assert "on one node 900 records of 1 KB are measured." in text
    assert "MISSED" in text and "Failed: session 2: broke" in text and "the rest" not in text
    assert "kept in nanoseconds" not in text, "these blocks have no raw latencies"
    lost = losses([result])
    assert [row[2] for row in lost] == ["0.92", "0.92"]
    assert "in 1 of them a Lockstep that flushes" in text


def test_reservations_about_the_figures_are_stated() -> None:
    result = headline_result([90.0, 95.0], 100.0)
    text = page([result])
    assert "No figures, and so not met: one node, 1 partition: throughput, both flush; " in text
    assert "(2 of them)" in text
    assert "38% in the median block of kafka's and 75% in the worst, 38% in the median" in text
    assert "the hypervisor took 2% at most" in text
    assert "1 of 4 sessions were measured while compiler threads still used up to 31% of a CPU" in text
    assert "tried once more: n3_latency1: not the leader; n3_latency1: not the leader\n" in text
    result["comparison"][0]["pairs"].pop()
    assert "(1 and 2 of them, because a session failed; 2 were planned)" in page([result])
    quiet = headline_result([100.0], 100.0)
    quiet["sessions"] = quiet["sessions"][1:]
    assert "compiler threads still" not in page([quiet]) and "tried once more" not in page([quiet])


def test_the_headlines_picture_has_every_ratio_and_right_is_better(tmp_path: Path) -> None:
    result = headline_result([90.0, 95.0], 100.0)
    memory = {"ratio": "memory", "title": "resident memory", "unit": "MB", "value": 0.1}
    result["comparison"].append(memory | {"subject": 1.0, "baseline": 10.0})
    drawn = [(title, [row["unit"] for row in rows]) for title, rows in panels_of(result).items()]
    assert [units for _, units in drawn] == [["requests/s"], ["requests/s"], ["MB"]]
    assert times_better(memory, 0.1) == pytest.approx(10.0)
    assert times_better(result["comparison"][0], 0.92) == 0.92
    draw(result, tmp_path / "headline.svg")
    assert "resident memory" in (tmp_path / "headline.svg").read_text()


def _result(kind: type[Comparison[Any, Any]], block: Mapping[str, Any], *failures: str) -> dict[str, Any]:
    """A result in which both sides have this block."""
    device = {"flushes": 300, "write_bytes": 3_072_000}
    block = {"policy": FLUSH, "proven": True, "device": device, "writes": 1000, "broker_cpu_s": 0.1, **block}
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    return {
        "command": f"python -m bench {kind.name}",
        **FACTS,
        "failures": [*failures],
        "kind": kind.name,
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], kind.goals, kind.ratios),
        "sessions": sessions,
    }


def _cells(text: str, name: str) -> list[str]:
    """Of Lockstep's line about a block, all but the borders."""
    lines = (line for line in text.splitlines() if "| lockstep" in line and name in line)
    return [cell.strip() for cell in next(lines).split("|")[1:-1]]


def test_the_page_has_a_section_of_each_kind() -> None:
    figures = {"requests_per_s": 100.0, "total_records": 1000}
    block: dict[str, Any] = {"name": "latency16_1", "figures": figures}
    block |= {"group_commits": 100, "flushes_per_replica_and_commit": 1.0}
    nodes = _result(Nodes3, block)
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {"kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    text = page([{**store, **FACTS, "command": "c", "failures": []}, nodes])
    assert text.index("## Three nodes") < text.index("## Seed 001's experiments")
    assert "MISSED" in text
    assert _cells(text, "latency16_1")[3:8] == ["1,000", "0.300", "100", "1.00", "3.00"]
    with pytest.raises(ValueError, match="one result of each kind"):
        page([nodes, nodes])


def test_a_place_that_nothing_fills_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("{result[a]}\n\n{none}\n\n{some}\n")
    monkeypatch.setattr("bench.figures.templates.TEXTS", tmp_path)
    assert fill_text("x", {"a": 1}, none="", some="2\n\n3") == "1\n\n2\n\n3\n"
    with pytest.raises(KeyError, match="some"):
        fill_text("x", {"a": 1}, none="")
    assert TEXTS.is_dir()
