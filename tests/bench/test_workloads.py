"""Workload files: what can be read, what is refused and how, which cells follow; the project's own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.baselines import tuned
from bench.baselines.targets import BROKERS, TARGETS, WORDS
from bench.full.cells import cells_of
from bench.full.command import plan
from bench.full.workloads import AXES, BadWorkload, read, read_all

GOOD = """
name = "w"
about = "words"
kind = "produce"
nodes = [1, 3]
targets = ["lockstep", "kafka", "kafka-flush", "kfake"]
message_bytes = 100
batch_bytes = 1000

[axes]
partitions = [1, 16]
producers = [4]
rate = [0, 500]
"""


def _file(directory: Path, text: str) -> Path:
    path = directory / "w.toml"
    path.write_text(text)
    return path


def test_a_workload_is_read_and_spread_over_its_axes(tmp_path: Path) -> None:
    workload = read(_file(tmp_path, GOOD))
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
        read(_file(tmp_path, GOOD.replace(was, becomes, 1)))
    assert why in str(refused.value)


def test_a_cell_is_another_where_anything_that_defines_it_is(tmp_path: Path) -> None:
    workload = read(_file(tmp_path, GOOD))
    (cell, other, *_) = cells_of(workload, 1)
    assert cell.digest == cells_of(replace(workload, about="other words", nodes=(1,)), 1)[0].digest
    digests = {cell.digest, other.digest, cells_of(workload, 3)[0].digest}
    digests |= {
        cells_of(replace(workload, **change), 1)[0].digest for change in ({"minutes": 1.0}, {"rounds": 4})
    }
    assert len(digests) == 5


def test_sessions_are_mirrored_and_targets_share_a_broker(tmp_path: Path) -> None:
    workload = read(_file(tmp_path, GOOD))
    order = [(number, broker.name) for number, broker in plan(cells_of(workload, 1), 2)]
    one = ["lockstep", "kafka", "kfake"]
    assert order == [*((0, name) for name in one), *((1, name) for name in one[::-1])]


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


def test_every_target_is_told_of_and_kafka_serves_two_from_one_process() -> None:
    assert set(WORDS) == set(TARGETS)
    assert TARGETS["kafka"] is TARGETS["kafka-flush"] is not TARGETS["kafka-tuned"]
    assert [broker.name for broker in BROKERS if not broker.keeps] == ["tansu", "kfake"]


def test_every_tuned_setting_has_its_reason_and_threads_follow_the_cores() -> None:
    assert all(setting.why for setting in tuned.settings())
    assert tuned.properties(8)["num.network.threads"] == "8"
    assert tuned.properties(1)["num.network.threads"] == "2"
    assert "num.io.threads" not in tuned.properties(2), "each waits for a flush: fewer flush fewer at once"
