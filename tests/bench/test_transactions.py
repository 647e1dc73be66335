"""Transactions measured: order of sessions, what is compared with what, and one real client's loop."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.load.clients import client_transactions
from bench.page.document import page
from bench.sessions.cluster import NodesSession
from bench.sessions.session import Session
from bench.settings import FLUSH, NODES_QUICK
from bench.transactions.command import (
    GOALS,
    ONE,
    RATIOS,
    SPREAD,
    Planned,
    TransactionsSession,
    main,
    plan_sessions,
)
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from tests.bench.sessions import session


def test_kafka_stands_between_lockstep_with_one_group_and_with_its_default() -> None:
    one, spread = (Planned(SUBJECT, "lockstep", (groups,)) for groups in (ONE, SPREAD))
    kafka = Planned(BASELINE, "kafka", (ONE, SPREAD))
    assert plan_sessions("lockstep", "kafka", 2) == [one, kafka, spread, spread, kafka, one]


def test_every_goal_has_its_ratio_and_groups_are_not_mixed() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    sessions = [
        session(
            BASELINE,
            ("transaction1_one", FLUSH, {"p50_ms": 48.0}, True),
            ("transaction1_spread", FLUSH, {"p50_ms": 50.0}, True),
        ),
        session(
            SUBJECT,
            ("transaction1_one", FLUSH, {"p50_ms": 4.0}, True),
            ("transaction1_spread", FLUSH, {"p50_ms": 20.0}, True),
        ),
    ]
    rows = {row["ratio"]: row for row in compare(sessions, [], GOALS, RATIOS)}
    assert (rows["transactions.p50.1.one"]["value"], rows["transactions.p50.1.one"]["met"]) == (
        pytest.approx(1 / 12),
        True,
    )
    assert (rows["transactions.p50.1.spread"]["value"], rows["transactions.p50.1.spread"]["met"]) == (
        pytest.approx(0.4),
        False,
    )
    assert "transactions.p50.10.one" not in rows


def test_an_unknown_requirement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--require", "transactions.p50.7.one<=1"])
    assert "transactions.p50.10.spread" in capsys.readouterr().err


@pytest.mark.parametrize(("groups", "asked"), [(ONE, 1), (SPREAD, 3)])
def test_different_leaders_are_waited_for_where_there_are_groups_for_them(
    tmp_path: Path, groups: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[2, 3, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]]
    monkeypatch.setattr(Session, "topic", lambda self, policy, partitions: "t")
    monkeypatch.setattr(NodesSession, "leaders", lambda self, topic: answers.pop())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    session = TransactionsSession(SUBJECT, "lockstep", (groups,), NODES_QUICK, tmp_path, "512M")
    try:
        assert session.topic(FLUSH, 4) == "t"
    finally:
        session.close()
    assert len(answers) == 3 - asked


def test_a_client_times_whole_transactions(tmp_path: Path) -> None:
    with LockstepTarget(directory=tmp_path) as target:
        with RawConnection(HOST, target.port) as raw:
            raw.create_topic("t", 3)
        job = {"topic": "t", "bootstrap": target.bootstrap, "partitions": 3, "record_bytes": 100}
        result = client_transactions({**job, "seconds": 0.6, "warmup_s": 0.2})
        with RawConnection(HOST, target.port) as raw:
            ends = [raw.list_offset("t", -1, partition=index)["offset"] for index in range(3)]
    assert result["total_transactions"] > 2
    assert sum(ends) == result["total_records"] == 6 * result["total_transactions"]
    assert 0 < result["commit_p50_ms"] <= result["p50_ms"] <= result["p99_ms"]


def test_the_page_tells_of_transactions() -> None:
    block = {
        "name": "transaction10_one",
        "policy": FLUSH,
        "figures": {"p50_ms": 5.0, "commit_p50_ms": 3.0, "total_records": 100},
        "proven": True,
        "device": {"flushes": 300, "write_bytes": 3_072_000},
    }
    sessions = [{"side": side, "memory": {}, "blocks": [block]} for side in (SUBJECT, BASELINE)]
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    result = {
        "command": "python -m bench transactions",
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": ["session 1: no"],
        "kind": "transactions",
        "heap": "512M",
        "subject": "lockstep",
        "baseline": "kafka",
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "sessions": sessions,
    }
    text = page([result])
    assert "## Transactions" in text and "Failed: session 1: no" in text
    assert "| transaction10_one | lockstep  | 5.00" in text
