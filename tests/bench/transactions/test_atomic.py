"""Atomic appends measured: what is compared with what, and where a topic's partitions are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.settings import FLUSH, NODES_QUICK
from bench.transactions.atomic import GOALS, RATIOS, WIDTH, AtomicSession, main
from bench.transactions.command import ONE, SPREAD
from tests.bench.outcomes import session


def test_every_goal_has_its_ratio_and_is_a_twentieth() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(BASELINE, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 40.0, "p99_ms": 100.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 2.0, "p99_ms": 10.0}, True)),
        session(BASELINE, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 40.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 2.2}, True)),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["atomic.p50.one"]["value"], rows["atomic.p50.one"]["met"]) == (pytest.approx(0.05), True)
    assert (rows["atomic.p50.spread"]["value"], rows["atomic.p50.spread"]["met"]) == (
        pytest.approx(0.055),
        False,
    )
    assert rows["atomic.p99.one"]["value"] == pytest.approx(0.1) and "goal" not in rows["atomic.p99.one"]


def test_an_unknown_requirement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--require", "atomic.p50.two<=1"])
    assert "atomic.p50.spread" in capsys.readouterr().err


def test_partitions_of_a_topic_are_in_one_group_in_lockstep_alone(tmp_path: Path) -> None:
    ours = AtomicSession(SUBJECT, "lockstep", (SPREAD,), NODES_QUICK, tmp_path, "512M")
    kafka = AtomicSession(BASELINE, "kafka", (ONE, SPREAD), NODES_QUICK, tmp_path, "512M")
    assert ours._topic_config(FLUSH) == {"lockstep.group": "1", "lockstep.locks": "true"}
    assert kafka._topic_config(FLUSH) == {"flush.messages": "1"}
    for each in (ours, kafka):
        each.close()


Work = Callable[[str], dict[str, float]]


@pytest.mark.parametrize(("kind", "bare"), [("lockstep", ["bare10_one"]), ("kafka", [])])
def test_lockstep_is_measured_without_its_client_too(
    tmp_path: Path, kind: str, bare: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: dict[str, tuple[str, bool]] = {}

    def job(self: AtomicSession, name: str, bare: bool = False, **words: object) -> dict[str, float]:
        jobs[str(words["topic"])] = name, bare
        return {"total_transactions": 1, "total_records": 1, "p50_ms": 1.0, "p99_ms": 1.0}

    def measure(self: AtomicSession, name: str, policy: str, work: Work, **words: int) -> dict[str, Any]:
        return {"name": name, "figures": work(name)}

    monkeypatch.setattr(AtomicSession, "job", job)
    monkeypatch.setattr(AtomicSession, "measure", measure)
    session = AtomicSession(SUBJECT, kind, (ONE,), NODES_QUICK, tmp_path, "512M")
    try:
        session.blocks_of()
    finally:
        session.close()
    ours = "client_transactions" if kind == "kafka" else "atomic_appends"
    assert jobs == {"atomic10_one": (ours, False), **dict.fromkeys(bare, ("atomic_appends", True))}
    assert not any(name in ratio.figure for ratio in RATIOS.values() for name in bare)
