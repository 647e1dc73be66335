"""The other kinds of cells, measured for real."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.full import command, work
from bench.full.cells import cells_of
from bench.full.rows import Rows
from bench.full.workloads import read_all
from bench.sessions import groups
from bench.settings import FLUSH
from tests.bench.full.grid import TINY, Grid


@pytest.mark.parametrize(
    ("kind", "axes", "figure"),
    [
        ("drain", "backlog_mb = [4]\nrate = [50]", "drained_gb_per_s"),
        ("idle", "connections = [500]", "kib_each_connection"),
        ("start", "backlog_mb = [4]", "first_ack_s"),
    ],
)
def test_other_kinds_of_cells(grid: Grid, kind: str, axes: str, figure: str) -> None:
    head = TINY.split("[axes]")[0].replace("batch_bytes = 300\n", "").replace('"produce"', f'"{kind}"')
    head = head.replace("message_bytes = 100", "message_bytes = 1024")
    grid.write(f"{head}[axes]\n{axes}\n")
    assert grid.run() == 0
    (row,) = grid.rows().values()
    found = row["medians"]
    assert isinstance(found, dict) and found[figure] > 0


def test_groups_that_are_not_proven_fail_their_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commits = {"name": "commits", "figures": {"requests_per_s": 9.0}, "proven": False, "flushes_needed": 7}
    others = {"name": "rebalance", "figures": {"start_s": 1.0}, "proven": True}
    session: Any = SimpleNamespace(blocks=[])
    monkeypatch.setattr(groups, "run", lambda *_: session.blocks.extend([others, commits]))
    (workload,) = (each for each in read_all() if each.kind == "groups")
    cell = cells_of(workload, 1)[0]
    found = work.KINDS["groups"](session, cell, FLUSH, tmp_path)
    assert found["figures"] == {"commits_requests_per_s": 9.0, "rebalance_start_s": 1.0}
    measured = command.Measured(Rows(tmp_path, quick=True), {}, 1)
    measured.found(cell, found)
    assert measured.failed_cells == {cell.name}
