"""Growth's command: a step is measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.growth.axes import RATE
from bench.growth.command import main


def test_a_step_is_measured_once_and_what_remains_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--quick", "--axis", "groups", "--most", "10", "--repeats", "1"]
    words += ["--out", str(tmp_path / "steps"), "--directory", str(tmp_path)]
    assert main([*words, "--limit", "1"]) == 0
    assert "1 of 2 steps are there; remaining: groups 10" in capsys.readouterr().err
    (path,) = (tmp_path / "steps").iterdir()
    kept = path.read_text()
    figures = json.loads(kept)["figures"]
    assert figures["rss_mb"] > 10 and figures["cpu_s_per_million_records"] > 0
    assert 0 <= figures["requests_per_s"] <= RATE and 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert main([*words, "--limit", "0"]) == 0 and path.read_text() == kept
    cells_of_other_machines = json.loads(kept)
    cells_of_other_machines["machine"]["kernel"] = "1.0"
    path.write_text(json.dumps(cells_of_other_machines))
    assert main(words) == 1, "no step of another machine is added to"
    assert "groups 1 was measured elsewhere: kernel differ" in capsys.readouterr().err
    path.write_text(kept)
    # without --quick the step is another one
    assert main([*words[1:], "--list"]) == 0
    assert "0 of 2 steps are there" in capsys.readouterr().err
