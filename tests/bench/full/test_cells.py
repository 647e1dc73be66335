"""Cells: which is another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.baselines import targets
from bench.full import cells
from bench.full.cells import AXES, BadWorkload, cells_of, read, read_all
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


def test_a_workload_is_read_and_spread_over_its_axes(tmp_path: Path) -> None:
    workload = read(workload_file(tmp_path, GOOD))
    assert (workload.records, workload.seconds, workload.in_flight) == (10, 9.0, 1)
    names = [cell.name for cell in cells_of(workload, 1)]
    assert len(names) == len(set(names)) == 4 * 2 * 2
    assert names[0] == "1n-lockstep-partitions1-producers4-rate0"
    # what keeps everything in memory has no cluster
    assert {cell.target for cell in cells_of(workload, 3)} == {"lockstep", "kafka", "kafka-flush"}


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ('name = "w"', 'name = "v"', "name is 'v': it must be the file's, 'w'"),
        ('"produce"', '"prodcue"', "kind is 'prodcue': one of produce, drain"),
        ("message_bytes", "messageSize", "unknown messageSize; known: about, axes"),
        ('about = "words"', "", "about is missing"),
        ('"kfake"', '"kfak"', "unknown targets kfak; known: lockstep"),
        ("rate = [0, 500]", "", "must have partitions, producers, rate"),
        ("rate = [0, 500]", "rate = []", "an axis without values"),
        ("nodes = [1, 3]", "nodes = [2]", "1 and 3 can be measured"),
        ("message_bytes = 100", "message_bytes = 0", "must be above 0"),
        ('kind = "produce"', 'kind = "produce"\ncommand = ["all"]', "go together"),
        ('name = "w"', "name = ", "no TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path, was: str, becomes: str, why: str) -> None:
    assert was in GOOD
    with pytest.raises(BadWorkload, match=r"^w\.toml: ") as refused:
        read(workload_file(tmp_path, GOOD.replace(was, becomes, 1)))
    assert why in str(refused.value)


def test_the_projects_own_files_cover_the_grid() -> None:
    workloads = {workload.name: workload for workload in read_all()}
    assert {workload.kind for workload in workloads.values()} == set(AXES)
    for kind in ("throughput", "requests"):
        for size, label in ((100, "100b"), (1024, "1kb"), (10240, "10kb"), (102400, "100kb")):
            workload = workloads[f"{kind}-{label}"]
            assert workload.message_bytes == size and workload.nodes == (1, 3)
            assert workload.axes["partitions"] == workload.axes["producers"] == (1, 16, 64)
            memory = ("tansu", "kfake") if kind == "requests" else ("kfake",)
            beside = ("kafka-tuned", "kafka-tuned-flush", *memory) if label == "1kb" else ()
            assert workload.targets == ("lockstep", "lockstep-os", "kafka", "kafka-flush", *beside)
    assert any(rate for rate in workloads["rate-1kb"].axes["rate"])
    assert 2000 in workloads["idle-connections"].axes["connections"]
    assert 8 in workloads["fan-out"].axes["groups"]
