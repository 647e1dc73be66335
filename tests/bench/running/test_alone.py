"""A measurement of Lockstep alone: its command line, and its exit status."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from bench.machine import facts
from bench.machine.device import NoBlockDevice
from bench.running import alone
from bench.settings import QUICK


def _options(**words: Any) -> Namespace:
    return Namespace(**{"quick": False, "rounds": None, "seconds": None, "json": True, **words})


def test_the_command_line_has_no_paths() -> None:
    options = _options(quick=True, seconds=2.0, out=Path("/somewhere"))
    words = ["python -m bench x", "--accounts", "3"]
    assert alone.command_line(words, options) == "python -m bench x --accounts 3 --quick --seconds 2.0"


@pytest.mark.parametrize("problems", [[], ["too few"]])
def test_a_problem_with_the_figures_is_a_failure(
    tmp_path: Path,
    problems: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "machine_facts", lambda parent: {"cpus": 2})
    status, path = alone.run_alone(
        "x",
        ["python -m bench x"],
        _options(out=tmp_path / "kept", directory=tmp_path),
        QUICK,
        lambda parent: ([{"blocks": []}], []),
        lambda sessions: ([{"found": len(sessions)}], problems),
        lambda result: "",
    )
    assert status == len(problems)
    assert path is not None
    kept = json.loads(path.read_text())
    assert (kept["kind"], kept["failures"], kept["rows"]) == ("x", problems, [{"found": 1}])
    assert json.loads(capsys.readouterr().out)["rows"] == [{"found": 1}]


def test_where_nothing_can_be_measured_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(parent: Path) -> Any:
        raise NoBlockDevice("no disk")

    monkeypatch.setattr(facts, "machine_facts", fails)
    options = _options(out=tmp_path, directory=tmp_path)
    found = alone.run_alone("x", [], options, QUICK, lambda _: ([], []), lambda _: ([], []), lambda _: "")
    assert found == (1, None)
    assert not any(tmp_path.iterdir())
