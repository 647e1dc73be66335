"""Contention as a table and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

from bench.contention.command import evaluate, main
from bench.contention.figures import point, table
from tests.bench.contention.results import client_result, sessions_of


def test_table_and_picture(tmp_path: Path) -> None:
    rows, _ = evaluate(sessions_of(point([client_result(200, 20), client_result(200)], 10.0)))
    result = {"rows": rows}
    assert "40" in table(result).splitlines()[-1] and "0.05" in table(result).splitlines()[-1]
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["--plot", str(tmp_path / "result.json"), "--picture", str(tmp_path / "p.svg")]) == 0
    assert "</svg>" in (tmp_path / "p.svg").read_text()
