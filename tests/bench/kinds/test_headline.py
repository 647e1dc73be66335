"""The headline: goals, the order of sessions, a short run of a broker against itself, raw latencies."""

from __future__ import annotations

import gzip
import hashlib
import json
from array import array
from pathlib import Path

import pytest

from bench import runner
from bench.figures.ratios import BASELINE, SUBJECT
from bench.kinds.headline import GOALS, RATIOS, Headline, Planned
from bench.page.document import page
from bench.page.losses import is_lost
from bench.settings import FLUSH, OS
from tests.bench.kinds.results import made


def test_sessions_alternate_are_mirrored_and_leave_neighbours_of_one_side() -> None:
    plan = made(Headline, "--rounds", "3").plan()
    assert [(each.nodes, each.side[0], each.round) for each in plan] == [
        *[(1, "b", 0), (1, "s", 0), (1, "s", 1), (1, "b", 1), (1, "b", 2), (1, "s", 2)],
        *[(3, "b", 0), (3, "s", 0), (3, "s", 1), (3, "b", 1), (3, "b", 2), (3, "s", 2)],
    ]
    assert Planned(1, SUBJECT, "lockstep", 0).policies == (FLUSH,)
    assert Planned(3, BASELINE, "kafka", 0).policies == (FLUSH, OS)


def test_a_broker_against_itself_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--vs", "self", "--nodes", "1", "--rounds", "2", "--row", "fan_out"]
    where = ["--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]
    assert runner.main(Headline, [*words, *where, "--require", "memory<=3"]) == 0
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
    assert runner.main(Headline, [*words, "--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]) == 0
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


def test_every_goal_has_its_ratio_and_every_ratio_a_direction() -> None:
    assert {goal.ratio for goal in GOALS} <= set(RATIOS)
    assert len(GOALS) == len({goal.ratio for goal in GOALS}) == 15
    for ratio in RATIOS.values():
        is_lost({"ratio": ratio.name, "unit": ratio.unit, "value": 1.0})
