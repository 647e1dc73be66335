"""The headline: order of sessions, its goals, a short run of a broker against itself, and its section."""

from __future__ import annotations

import gzip
import hashlib
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from bench.figures.intervals import with_intervals
from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.figures.tables import table
from bench.headline.command import Planned, main, plan_sessions
from bench.headline.goals import GOALS, RATIOS
from bench.headline.plots import draw, panels_of, times_better
from bench.page.document import page
from bench.page.losses import is_lost, losses, section
from bench.settings import FLUSH, OS


def test_sessions_alternate_are_mirrored_and_leave_neighbours_of_one_side() -> None:
    plan = plan_sessions("lockstep", "kafka", (1, 3), 3)
    assert [(each.nodes, each.side[0], each.round) for each in plan] == [
        *[(1, "b", 0), (1, "s", 0), (1, "s", 1), (1, "b", 1), (1, "b", 2), (1, "s", 2)],
        *[(3, "b", 0), (3, "s", 0), (3, "s", 1), (3, "b", 1), (3, "b", 2), (3, "s", 2)],
    ]
    assert Planned(1, SUBJECT, "lockstep", 0).policies == (FLUSH,)
    assert Planned(3, BASELINE, "kafka", 0).policies == (FLUSH, OS)


def test_every_goal_has_its_ratio_and_every_ratio_a_direction() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    assert len(GOALS) == len({goal.ratio for goal in GOALS}) == 15
    for ratio in RATIOS.values():
        is_lost({"ratio": ratio.name, "unit": ratio.unit, "value": 1.0})
    with pytest.raises(ValueError, match="more 'parsecs' better"):
        is_lost({"ratio": "run", "unit": "parsecs", "value": 12.0})


def test_a_broker_against_itself_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--vs", "self", "--nodes", "1", "--rounds", "2", "--row", "fan_out"]
    where = ["--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]
    assert main([*words, *where, "--require", "memory<=3"]) == 0
    assert "fan-out to 8 groups" in capsys.readouterr().out
    (kept,) = (tmp_path / "kept").iterdir()
    result = json.loads(kept.read_text())
    assert [session["round"] for session in result["sessions"]] == [0, 0, 1, 1]
    by_ratio = {row["ratio"]: row for row in result["comparison"]}
    rate = by_ratio["fan_out.flush"]
    assert len(rate["pairs"]) == 2 and rate["low"] < rate["high"]
    assert by_ratio["memory"]["met"] is True and 0.3 < by_ratio["memory"]["value"] < 3
    assert "produce.flush" not in by_ratio and "restart" not in by_ratio
    blocks = {block["name"] for session in result["sessions"] for block in session["blocks"]}
    assert blocks == {"fan_out"}
    assert str(tmp_path) not in kept.read_text()


def test_every_latency_of_a_closed_loop_is_kept_in_a_file_that_its_block_names(tmp_path: Path) -> None:
    words = ["--quick", "--vs", "self", "--nodes", "1", "--row", "latency", "--seconds", "0.3"]
    assert main([*words, "--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]) == 0
    (kept,) = (tmp_path / "kept").glob("*.json")
    result = json.loads(kept.read_text())
    beside = tmp_path / "kept" / "raw" / kept.stem
    names = set()
    for number, session in enumerate(result["sessions"], 1):
        assert [block["name"] for block in session["blocks"]] == ["latency1", "latency16", "latency64"]
        for block in session["blocks"]:
            said = block["raw"]
            assert said["file"] == f"{block['name']}-flush-{number}.i64.gz"
            data = gzip.decompress((beside / said["file"]).read_bytes())
            assert hashlib.sha256(data).hexdigest() == said["sha256"]
            raw = array("q")
            raw.frombytes(data)
            assert len(raw) == said["samples"] >= block["figures"]["requests"] > 0
            assert max(raw) / 1e6 == pytest.approx(block["figures"]["max_ms"])
            names.add(said["file"])
    assert {path.name for path in beside.iterdir()} == names and len(names) == 6
    samples = sum(block["raw"]["samples"] for session in result["sessions"] for block in session["blocks"])
    assert f"Each of the {samples:,} latencies is kept in nanoseconds" in page([result])


def test_rows_that_three_nodes_have_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--nodes", "3", "--row", "consume"])
    assert "three nodes are measured in latency and produce only" in capsys.readouterr().err


def _result(rates: list[float], baseline: float) -> dict[str, Any]:
    def session(side: str, number: int, rate: float) -> dict[str, Any]:
        blocks = [
            {
                "name": "latency64",
                "policy": policy,
                "figures": {"requests_per_s": rate},
                "proven": True,
                "writes": 1000,
                "device": {"flushes": 16, "flush_ms": 1, "write_bytes": 64_000},
                "broker_cpu_s": 0.05,
                "client_cpu_share": 0.97,
                "foreign_cpu_share": 0.75 if number else 0.01,
                "stolen_cpu_share": 0.02,
            }
            for policy in (FLUSH, OS)
        ]
        warmup = {"settled": side == SUBJECT or number > 0, "compiler_share_at_end": 0.31}
        outcome = {"side": side, "round": number, "memory": {}, "blocks": blocks, "warmup": warmup}
        return outcome | {"again": ["n3_latency1: not the leader\nits log"] if number else []}

    sessions = [session(BASELINE, number, baseline) for number in range(len(rates))]
    sessions += [session(SUBJECT, number, rate) for number, rate in enumerate(rates)]
    goals = {goal.ratio: goal for goal in GOALS}
    rows = compare(sessions, [], GOALS, RATIOS)
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    return {
        "kind": "headline",
        "command": "python -m bench headline",
        "started": "2026-01-01T00:00:00Z",
        "subject": "lockstep",
        "baseline": "kafka",
        "heap": "512M",
        "sizes": {"1": {"rounds": len(rates), "produce_records": {"flush": 900, "os": 900}}},
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": ["session 2: broke\nthe rest"],
        "comparison": with_intervals(rows, sessions, RATIOS, goals),
        "sessions": sessions,
    }


def test_the_page_begins_with_the_headline_and_says_where_lockstep_loses() -> None:
    result = _result([90.0, 95.0, 91.0], 100.0)
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
    assert "on one node 900 records of 1 KB count." in text
    assert "MISSED" in text and "Failed: session 2: broke" in text and "the rest" not in text
    assert "kept in nanoseconds" not in text, "these blocks have no raw latencies"
    lost = losses([result])
    assert [row[2] for row in lost] == ["0.92", "0.92"]
    assert "1 of them are a Lockstep that flushes" in text


def test_what_speaks_against_the_figures_is_said() -> None:
    result = _result([90.0, 95.0], 100.0)
    text = page([result])
    assert "No figures, and so not met: one node, 1 partition: throughput, both flush; " in text
    assert "(2 of them)" in text
    assert "38% in the median block of kafka's and 75% in the worst, 38% in the median" in text
    assert "the hypervisor took 2% at most" in text
    assert "1 of 4 sessions were measured while compiler threads still used up to 31% of a CPU" in text
    assert "tried once more: n3_latency1: not the leader; n3_latency1: not the leader\n" in text
    result["comparison"][0]["pairs"].pop()
    assert "(1 and 2 of them, as a session failed; 2 were to be)" in page([result])
    quiet = _result([100.0], 100.0)
    quiet["sessions"] = quiet["sessions"][1:]
    assert "compiler threads still" not in page([quiet]) and "tried once more" not in page([quiet])


def test_the_picture_has_every_ratio_and_right_is_better(tmp_path: Path) -> None:
    result = _result([90.0, 95.0], 100.0)
    memory = {"ratio": "memory", "title": "resident memory", "unit": "MB", "value": 0.1}
    result["comparison"].append(memory | {"subject": 1.0, "baseline": 10.0})
    drawn = [(title, [row["unit"] for row in rows]) for title, rows in panels_of(result).items()]
    assert [units for _, units in drawn] == [["requests/s"], ["requests/s"], ["MB"]]
    assert times_better(memory, 0.1) == pytest.approx(10.0)
    assert times_better(result["comparison"][0], 0.92) == 0.92
    draw(result, tmp_path / "headline.svg")
    assert "resident memory" in (tmp_path / "headline.svg").read_text()


def test_our_own_figures_are_not_another_brokers() -> None:
    result = _result([300.0, 300.0], 100.0)
    own = {"ratio": "x", "title": "growth", "unit": "MB", "subject": 2.0, "baseline": 1.0, "value": 2.0}
    before = section([result])
    result["comparison"] += [own | {"baseline_growth": 3.0}, own | {"title": "most", "bound": True}]
    assert section([result]) == before, "neither lost nor counted"
    shown = [[cell.strip() for cell in line.split("|")] for line in table(result, "github").splitlines()]
    assert [line[3] for line in shown[-2:]] == ["1, our own", "1, the bound"]


def test_who_wins_everything_loses_nothing_and_noise_is_called_so() -> None:
    assert "In none of" in section([_result([300.0, 300.0], 100.0)])
    ((*_, noise), _) = losses([_result([70.0, 140.0], 104.0)])
    assert noise == "the interval holds 1"
    assert [row[-1] for row in losses([_result([90.0, 91.0], 100.0)])] == ["no", "no"]
    assert [row[-1] for row in losses([_result([90.0], 100.0)])] == ["no interval", "no interval"]
    assert section([]) == ""
