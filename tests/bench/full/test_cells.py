"""Cells: which is another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.baselines import targets
from bench.full import cells
from bench.full.cells import cells_of
from bench.full.workloads import read, read_all
from tests.bench.full.grid import GOOD, workload_file


def test_a_cell_is_another_one_where_its_broker_or_the_way_it_is_measured_is() -> None:
    (fan_out,) = (each for each in read_all() if each.name == "fan-out")
    cell = next(each for each in cells_of(fan_out, 1) if each.target == "kafka-tuned")
    digest = cell.digest
    tuned = replace(targets.TARGETS["kafka-tuned"], heap="3G")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(targets.TARGETS, "kafka-tuned", tuned)
        assert cell.digest != digest
        patch.undo()
        patch.setitem(cells.MEASURED_AS, "fan_out", 99)
        assert cell.digest != digest
    assert cell.digest == digest


def test_a_cell_is_another_where_anything_that_defines_it_is(tmp_path: Path) -> None:
    workload = read(workload_file(tmp_path, GOOD))
    (cell, other, *_) = cells_of(workload, 1)
    assert cell.digest == cells_of(replace(workload, about="other words", nodes=(1,)), 1)[0].digest
    digests = {cell.digest, other.digest, cells_of(workload, 3)[0].digest}
    digests |= {
        cells_of(replace(workload, **change), 1)[0].digest for change in ({"minutes": 1.0}, {"rounds": 4})
    }
    assert len(digests) == 5
