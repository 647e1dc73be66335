"""TLS and logins measured: goals, the order of sessions, a short run of a broker against itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import runner
from bench.figures.ratios import BASELINE, SUBJECT
from bench.kinds.secured import GOALS, RATIOS, Planned, Secured, add_cpu_per_gb
from bench.page.document import pages
from bench.page.losses import is_lost
from bench.settings import FLUSH, OS
from tests.bench.kinds.results import made


def test_sessions_alternate_and_are_mirrored() -> None:
    plan = made(Secured, "--rounds", "2").plan()
    ours = [Planned(SUBJECT, "lockstep", (policy,), 0) for policy in (FLUSH, OS)]
    assert plan[:3] == [Planned(BASELINE, "kafka", (FLUSH, OS), 0), *ours]
    assert [(each.side, each.policies) for each in plan[3:]] == [
        (each.side, each.policies) for each in plan[2::-1]
    ]
    assert {each.round for each in plan[3:]} == {1}


def test_every_goal_has_its_ratio_and_every_ratio_a_direction() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    for ratio in RATIOS.values():
        is_lost({"ratio": ratio.name, "unit": ratio.unit, "value": 1.0})


def test_cpu_is_that_of_each_gigabyte() -> None:
    block = {"figures": {"cpu_us": 50.0, "writes": 4_000}}  # 0.2 s in all
    add_cpu_per_gb(block, 100e6)
    assert block["figures"]["cpu_s_per_gb"] == 2.0


def test_a_broker_against_itself_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--vs", "self", "--seconds", "0.4"]
    where = ["--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]
    assert runner.main(Secured, [*words, *where]) == 0
    assert "SASL_SSL: 16 producers, single messages, both flush" in capsys.readouterr().out
    (kept,) = (tmp_path / "kept").iterdir()
    assert str(tmp_path) not in kept.read_text() and "bench-secret" not in kept.read_text()
    result = json.loads(kept.read_text())
    assert {row["ratio"] for row in result["comparison"]} == set(RATIOS)
    for session in result["sessions"]:
        assert session["tls"]["version"] == "TLSv1.3"
        assert all(block["figures"]["cpu_us"] > 0 for block in session["blocks"])
    page = pages([result])["benchmarks/secured.md"]
    assert f"TLSv1.3 with {result['sessions'][0]['tls']['cipher']} and log in" in page
    assert "| read_tls" in page and "| produce_plain" in page
