"""What a lock costs, for a moment and for real: the figures are there, and a bound that is missed says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import runner
from bench.exit_status import EXIT_GOAL_MISSED
from bench.kinds.locks import Locks


def test_both_kinds_of_topics_are_written_to_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--quick", "--seconds", "0.2", "--rounds", "1", "--json"]
    words += ["--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]
    assert runner.main(Locks, [*words, "--most", "1000"]) == 0
    plain, locked, ratio = json.loads(capsys.readouterr().out)["rows"]
    assert plain["total_records"] > 0 and locked["total_records"] > 0
    assert ratio["p50_ms"] == pytest.approx(locked["p50_ms"] / plain["p50_ms"])
    assert runner.main(Locks, [*words, "--most", "0.001"]) == EXIT_GOAL_MISSED
    with pytest.raises(SystemExit):
        runner.main(Locks, [*words, "--most", "nan"])
