"""Which rows the grid's page has, and what is said above its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.figures.origins import MixedMachines
from bench.full.cells import cells_of
from bench.full.section import collect_rows, comparisons, section
from bench.full.workloads import read_all
from compat_tests.targets import ROOT
from tests.bench.full.kept_rows import write_row


def test_the_grids_whole_comparisons_are_given_to_the_page_and_are_no_table(tmp_path: Path) -> None:
    rounds = [{"result": {"comparison": [], "kind": "nodes3"}}]
    write_row(tmp_path, "nodes", "nodes3", settings={"kind": "command"}, point={}, rounds=rounds)
    result = collect_rows(tmp_path)
    kept_in = "full/nodes/1n-nodes3.json"
    assert comparisons(result) == [{"comparison": [], "kind": "nodes3", "kept_in": kept_in}]
    assert "### nodes" not in section(result)


def test_what_failed_within_a_command_is_told(tmp_path: Path) -> None:
    rounds = [{"result": {"comparison": []}, "failures": ["session 2: broke\nits log"]}]
    write_row(tmp_path, "whole", "all", settings={"kind": "command"}, point={}, rounds=rounds)
    assert "- whole/1n-all: session 2: broke" in section(collect_rows(tmp_path))


def test_rows_of_several_commits_are_counted_and_rows_of_several_machines_refused(tmp_path: Path) -> None:
    figures = {"requests_per_s": 1.0}
    write_row(tmp_path, "requests", "lockstep", medians=figures, rounds=[])
    other = {"commit": "fedcba9876543210", "dirty": True}
    write_row(tmp_path, "requests", "kafka", medians=figures, rounds=[], code=other, started="2026-02-01")
    counted = "rows of 2 commits, newest first: fedcba987654 with changes (1), 0123456789ab (1)"
    assert counted in section(collect_rows(tmp_path))
    assert "Timed blocks of 3 s. In each cell: requests answered a second" in section(collect_rows(tmp_path))
    machine = {"processor": "Q", "cpus": 2, "memory_gb": 8, "kernel": "7", "disk": {"device": "vda"}}
    write_row(tmp_path, "requests", "tansu", medians=figures, rounds=[], machine=machine)
    with pytest.raises(MixedMachines, match=r"1n-tansu was measured elsewhere: .*kernel.*processor"):
        collect_rows(tmp_path)
    write_row(tmp_path, "requests", "tansu", medians=figures, rounds=[], quick=True)
    with pytest.raises(ValueError, match="1n-tansu is of a quick run"):
        collect_rows(tmp_path)


def test_rows_of_a_workload_that_has_changed_since_are_left_out(tmp_path: Path) -> None:
    cell = next(cell for each in read_all() if each.name == "fan-out" for cell in cells_of(each, 1))
    row: dict[str, Any] = {
        "cell": str(cell),
        "settings": {"kind": "fan_out"},
        "point": {"groups": 1},
        "medians": {"mb_per_s": 5.0},
        "rounds": [],
    }
    write_row(tmp_path, "fan-out", "lockstep", **row, digest="of yesterday")
    with pytest.raises(ValueError, match="no rows of today's workloads"):
        collect_rows(tmp_path)
    write_row(tmp_path, "fan-out", "lockstep", **row, digest=cell.digest)
    assert len(collect_rows(tmp_path)["rows"]) == 1


def test_which_rows_have_cpu_is_true_of_the_kept_rows() -> None:
    """The words above the tables, held against the newest kept row of each kind."""
    directory = ROOT / "bench" / "results" / "full"
    for workload, has in (
        ("groups", False),
        ("start", False),
        ("failover", False),
        ("fan-out", True),
        ("drain", True),
    ):
        row = json.loads(sorted((directory / workload).glob("*.json"))[0].read_text())
        assert all(("broker_cpu_s" in block and "device" in block) is has for block in row["rounds"]), (
            workload
        )
