"""Transactions and atomic appends: the order of sessions, what is compared, where partitions are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.kinds.transactions import ATOMIC_WIDTH as WIDTH
from bench.kinds.transactions import ONE, SPREAD, Atomic, AtomicSession, Planned, Transactions
from bench.settings import FLUSH
from tests.bench.kinds.results import made
from tests.bench.outcomes import session


def test_every_goal_of_atomic_appends_has_its_ratio_and_is_a_twentieth() -> None:
    assert {goal.ratio for goal in Atomic.goals} <= set(Atomic.ratios)
    sessions = [
        session(BASELINE, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 40.0, "p99_ms": 100.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{ONE}", FLUSH, {"p50_ms": 2.0, "p99_ms": 10.0}, True)),
        session(BASELINE, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 40.0}, True)),
        session(SUBJECT, (f"atomic{WIDTH}_{SPREAD}", FLUSH, {"p50_ms": 2.2}, True)),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], Atomic.goals, Atomic.ratios)}
    assert (rows["atomic.p50.one"]["value"], rows["atomic.p50.one"]["met"]) == (pytest.approx(0.05), True)
    assert (rows["atomic.p50.spread"]["value"], rows["atomic.p50.spread"]["met"]) == (
        pytest.approx(0.055),
        False,
    )
    assert rows["atomic.p99.one"]["value"] == pytest.approx(0.1) and "goal" not in rows["atomic.p99.one"]


def test_kafka_stands_between_lockstep_with_one_group_and_with_its_default() -> None:
    one, spread = (Planned(SUBJECT, "lockstep", (groups,)) for groups in (ONE, SPREAD))
    kafka = Planned(BASELINE, "kafka", (ONE, SPREAD))
    for kind in (Transactions, Atomic):
        assert made(kind, "--rounds", "2").plan() == [one, kafka, spread, spread, kafka, one]


def test_every_goal_of_transactions_has_its_ratio_and_groups_are_not_mixed() -> None:
    assert {goal.ratio for goal in Transactions.goals} <= set(Transactions.ratios)
    sessions = [
        session(
            side,
            ("transaction1_one", FLUSH, {"p50_ms": one}, True),
            ("transaction1_spread", FLUSH, {"p50_ms": spread}, True),
        )
        for side, one, spread in ((BASELINE, 48.0, 50.0), (SUBJECT, 4.0, 20.0))
    ]
    compared = compare(sessions, [], Transactions.goals, Transactions.ratios)
    rows = {row["ratio"]: (row["value"], row.get("met")) for row in compared}
    assert rows["transactions.p50.1.one"] == (pytest.approx(1 / 12), True)
    assert rows["transactions.p50.1.spread"] == (pytest.approx(0.4), False)
    assert "transactions.p50.10.one" not in rows


def test_partitions_of_a_topic_are_in_one_group_in_lockstep_alone(tmp_path: Path) -> None:
    run = made(Atomic, "--directory", str(tmp_path))
    ours = run.session(Planned(SUBJECT, "lockstep", (SPREAD,)))
    kafka = run.session(Planned(BASELINE, "kafka", (ONE, SPREAD)))
    assert ours.setup.topic_config(FLUSH) == {"lockstep.group": "1", "lockstep.locks": "true"}
    assert kafka.setup.topic_config(FLUSH) == {"flush.messages": "1"}
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
    session = made(Atomic, "--directory", str(tmp_path)).session(Planned(SUBJECT, kind, (ONE,)))
    try:
        session.blocks_of()
    finally:
        session.close()
    ours = "client_transactions" if kind == "kafka" else "atomic_appends"
    assert jobs == {"atomic10_one": (ours, False), **dict.fromkeys(bare, ("atomic_appends", True))}
    assert not any(name in ratio.figure for ratio in Atomic.ratios.values() for name in bare)
