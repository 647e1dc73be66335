"""Evidence is added run by run, names its source, and a resumed count trusts only the same source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns import evidence, kill9


def product(root: Path) -> Path:
    for package in evidence.PRODUCT:
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text(f'"""{package}."""\n')
    return root


def test_runs_add_up(tmp_path: Path) -> None:
    evidence.add_run("x", {"kills": 1}, tmp_path)
    evidence.add_run("x", {"kills": 2}, tmp_path)
    runs = evidence.load_runs("x", tmp_path)
    assert [run["kills"] for run in runs] == [1, 2]
    assert {"commit", "source", "machine", "finished"} <= set(runs[0])
    assert list(tmp_path.iterdir()) == [tmp_path / "x.json"]


def test_an_open_run_replaces_its_own_figures_and_no_others(tmp_path: Path) -> None:
    evidence.add_run("x", {"cases": [1]}, tmp_path)
    run = evidence.OpenRun("x", tmp_path)
    run.save({"cases": [2]})
    evidence.add_run("x", {"cases": [9]}, tmp_path)
    run.save({"cases": (2, 3)})
    run.save({"cases": (2, 3, 4)})
    assert [each["cases"] for each in evidence.load_runs("x", tmp_path)] == [[1], [9], [2, 3, 4]]


def test_a_continued_run_takes_the_place_of_its_former_figures(tmp_path: Path) -> None:
    for each in (1, 2):
        evidence.add_run("x", {"cases": each}, tmp_path)
    former = evidence.load_runs("x", tmp_path)[-1]
    evidence.OpenRun("x", tmp_path, former=former).save({"cases": 3})
    assert [each["cases"] for each in evidence.load_runs("x", tmp_path)] == [1, 3]


def test_the_source_digest_sees_the_product_and_nothing_else(tmp_path: Path) -> None:
    root = product(tmp_path)
    before = evidence.source_digest(root)
    (root / "README.md").write_text("changed")
    (root / "broker" / "notes.txt").write_text("changed")
    assert evidence.source_digest(root) == before
    (root / "broker" / "__init__.py").write_text('"""changed."""\n')
    assert evidence.source_digest(root) != before


def test_percentiles_are_in_milliseconds() -> None:
    figures = evidence.percentiles([n / 1000 for n in range(1, 101)])
    assert figures == {"p50_ms": 51.0, "p99_ms": 100.0, "max_ms": 100.0}
    assert evidence.percentiles([]) == {}


def test_resume_counts_only_kills_of_this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    here = evidence.source_digest()
    runs = [
        {"source": here, "target": "lockstep", "preload_bytes": 0, "kills": 25},
        {"source": here, "target": "lockstep", "preload_bytes": 1 << 30, "kills": 7},
        {"source": here, "target": "kafka", "preload_bytes": 0, "kills": 9},
        {"source": "elsewhere", "target": "lockstep", "preload_bytes": 0, "kills": 50},
    ]
    monkeypatch.setattr(evidence, "load_runs", lambda name: runs)
    assert kill9.kills_on_record(0) == 25
    assert kill9.kills_on_record(1 << 30) == 7
