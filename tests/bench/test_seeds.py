"""The seeds' figures beside ours, and the grid's tables, from small results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.figures.origins import MixedMachines
from bench.full.cells import cells_of
from bench.full.section import compared, gathered, section, tables
from bench.full.workloads import read_all
from bench.page import seeds
from bench.page.document import page, read
from bench.player.points import FULL, GRPC, OPEN, TRANSACTIONS, Point, block_name


def _run(experiment: str, payload_bytes: int, naive: bool = False, **figures: Any) -> dict[str, Any]:
    store = {"flush": True, "naive": naive, "replicas": 3, "depth": None, "loss": 0.0}
    load = {"payload_bytes": payload_bytes, "batch": 32, "rate": 1000.0}
    return {"experiment": experiment, "store": store, "load": load, "figures": figures}


def _naive(written: float, space: int) -> dict[str, Any]:
    return {
        "replicas": [{"bytes_per_payload_byte": {"log": written}}],
        "log_bytes": space,
        "device": {"write_bytes": space},
        "allocated_bytes": space,
    }


def test_seed_001_stands_beside_what_was_flushed_here() -> None:
    result = {
        "runs": [
            _run("7a", 128, False, **_naive(1.1, 100)),
            _run("7a", 128, True, **_naive(2.2, 250)),
            _run("7b", 1024, mb_per_s=10.0, payloads_per_s=990.0, cpu_share={"leader": 0.5}),
            _run("7b", 1024, mb_per_s=10.5, payloads_per_s=1100.0, cpu_share={"leader": 0.1}),
            _run("7b", 512, mb_per_s=99.0),
            _run("7d", 1024, mb_per_s=30.0, payloads_per_s=990.0),
            _run("7d", 1024, mb_per_s=20.0, payloads_per_s=600.0),
            _run("7d", 4096, mb_per_s=81.8),
            _run("7c", 4096, mb_per_s=80.0),
            {**_run("7c", 4096, mb_per_s=900.0), "store": {"flush": False}},
        ]
    }
    found = {row[1]: row[3] for row in seeds.logstore_rows(result)}
    assert found["7a"] == "writes 0.50, space 0.40 of the naive store's"
    assert found["7b"] == (
        "1 KB, all batch sizes: 10.00 to 10.50 MB/s, all that was offered; "
        "the leader took 50% to 10% of a CPU"
    )
    assert found["7c"] == "4 KB: at most 80.0 MB/s"
    assert found["7d"] == "1 KB, 1 to 5 replicas: 20.00 to 30.00 MB/s; 4 KB: 81.8 MB/s"


def test_seed_000_has_both_loops_and_a_bound_takes_the_highest() -> None:
    def block(system: str, loop: str, point: Point, **figures: float) -> dict[str, Any]:
        return {"name": block_name(system, loop, point), "figures": {"per_s": 8.0, **figures}, "proven": True}

    blocks = [
        block(GRPC, OPEN, Point(2, 10), player_mean_ms=0.2),
        block(GRPC, OPEN, Point(20, 10), player_mean_ms=0.3),
        block(TRANSACTIONS, OPEN, Point(10, 10), apply_mean_ms=70.0),
        {**block(GRPC, OPEN, Point(20, 10), player_mean_ms=9.9), "proven": False},
    ]
    axes = {"targets_keys": FULL.targets_keys, "keys_targets": FULL.keys_targets}
    result = {"axes": axes, "sessions": [{"blocks": blocks}]}
    rows = seeds.player_rows(result)
    by_figure = {row[2].split(":")[0]: row for row in rows}
    delay = by_figure["LogPlayer delay, average, all numbers of targets"]
    assert delay[2].endswith("< 0.32 ms") and delay[3] == "0.30 ms, open loop"
    assert by_figure["Kafka transactions, average"][3] == "70.00 ms, open loop"
    text = seeds.section({"player": result})
    assert "python -m bench player" not in text and "| 000" in text
    assert seeds.section({}) == ""


def _row(directory: Path, workload: str, target: str, nodes: int = 1, **more: Any) -> None:
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    row = {
        "cell": f"{workload}/{nodes}n-{target}",
        "settings": {"kind": "produce", "minutes": 0.05},
        "nodes": nodes,
        "target": target,
        "point": {"partitions": 16, "rate": 0},
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        **more,
    }
    points = "".join(f"-{axis}{value}" for axis, value in more.get("point", {}).items())
    path = directory / workload / f"{nodes}n-{target}{points}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))


def test_the_grids_whole_comparisons_are_given_to_the_page_and_are_no_table(tmp_path: Path) -> None:
    rounds = [{"result": {"comparison": [], "kind": "nodes3"}}]
    _row(tmp_path, "nodes", "nodes3", settings={"kind": "command"}, point={}, rounds=rounds)
    result = gathered(tmp_path)
    kept_in = "full/nodes/1n-nodes3.json"
    assert compared(result) == [{"comparison": [], "kind": "nodes3", "kept_in": kept_in}]
    assert "### nodes" not in section(result)


def test_what_failed_within_a_command_is_told(tmp_path: Path) -> None:
    rounds = [{"result": {"comparison": []}, "failures": ["session 2: broke\nits log"]}]
    _row(tmp_path, "whole", "all", settings={"kind": "command"}, point={}, rounds=rounds)
    assert "- whole/1n-all: session 2: broke" in section(gathered(tmp_path))


def test_rows_of_several_commits_are_counted_and_rows_of_several_machines_refused(tmp_path: Path) -> None:
    figures = {"requests_per_s": 1.0}
    _row(tmp_path, "requests", "lockstep", medians=figures, rounds=[])
    other = {"commit": "fedcba9876543210", "dirty": True}
    _row(tmp_path, "requests", "kafka", medians=figures, rounds=[], code=other, started="2026-02-01")
    counted = "rows of 2 commits, newest first: fedcba987654 with changes (1), 0123456789ab (1)"
    assert counted in section(gathered(tmp_path))
    assert "Timed blocks of 3 s. In each cell: requests answered a second" in section(gathered(tmp_path))
    machine = {"processor": "Q", "cpus": 2, "memory_gb": 8, "kernel": "7", "disk": {"device": "vda"}}
    _row(tmp_path, "requests", "tansu", medians=figures, rounds=[], machine=machine)
    with pytest.raises(MixedMachines, match=r"1n-tansu was measured elsewhere: .*kernel.*processor"):
        gathered(tmp_path)
    _row(tmp_path, "requests", "tansu", medians=figures, rounds=[], quick=True)
    with pytest.raises(ValueError, match="1n-tansu is of a quick run"):
        gathered(tmp_path)


def test_each_table_says_where_it_was_measured_if_not_where_the_newest_was(tmp_path: Path) -> None:
    figures = {"requests_per_s": 1.0}
    _row(tmp_path, "requests", "lockstep", medians=figures, rounds=[])
    machine = {**gathered(tmp_path)["machine"], "kernel": "7"}
    later = "2026-02-01T00:00:00Z"
    _row(tmp_path, "requests", "lockstep", 3, medians=figures, rounds=[], machine=machine, started=later)
    own: dict[str, Any] = {
        "settings": {"kind": "command"},
        "machine": {**machine, "kernel": "8"},
        "rounds": [],
    }
    _row(tmp_path, "whole", "contention", **own)
    result = gathered(tmp_path)
    assert result["machine"] == machine, "of the newest cells; a comparison has its own"
    one, three = tables(result)
    assert "\n\nMeasured elsewhere, kernel: 6.\n\n|" in one and "Measured elsewhere" not in three


def test_a_table_says_by_which_figures_lockstep_is_behind_which_kafka(tmp_path: Path) -> None:
    for producers, ours, shipped in ((1, 90.0, 100.0), (16, 110.0, 100.0)):
        for target, rate in (("lockstep", ours), ("kafka", shipped), ("kafka-flush", 20.0)):
            figures = {"requests_per_s": rate, "p99_ms": 1.0 if target == "lockstep" else 2.0}
            point = {"producers": producers}
            _row(tmp_path, "requests", target, medians=figures, rounds=[], point=point)
    behind = "is behind:\n\n- requests answered a second: behind `kafka` in 1 of 2\n"
    assert behind in section(gathered(tmp_path))
    assert "p99: behind" not in section(gathered(tmp_path))
    for target, seconds in (("lockstep", 0.5), ("kafka", 9.0)):
        figures = {"first_ack_s": seconds}
        _row(tmp_path, "starting", target, medians=figures, rounds=[], settings={"kind": "start"})
    (table,) = (each for each in tables(gathered(tmp_path)) if each.startswith("### starting"))
    assert "behind in no point" in table and "session.timeout.ms" in table


def test_at_a_rate_that_all_keep_to_only_latencies_are_compared(tmp_path: Path) -> None:
    for target, rate, slow in (("lockstep", 499.0, 1.5), ("kafka", 500.0, 1.0)):
        figures = {"requests_per_s": rate, "p50_ms": slow}
        _row(tmp_path, "requests", target, medians=figures, rounds=[], point={"rate": 500})
    (table,) = tables(gathered(tmp_path))
    assert "- p50: behind `kafka` in 1 of 1" in table and "requests answered a second: behind" not in table


def test_rows_of_a_workload_that_has_changed_since_are_left_out(tmp_path: Path) -> None:
    cell = next(cell for each in read_all() if each.name == "fan-out" for cell in cells_of(each, 1))
    row: dict[str, Any] = {
        "cell": str(cell),
        "settings": {"kind": "fan_out"},
        "point": {"groups": 1},
        "medians": {"mb_per_s": 5.0},
        "rounds": [],
    }
    _row(tmp_path, "fan-out", "lockstep", **row, digest="of yesterday")
    with pytest.raises(ValueError, match="no rows of today's workloads"):
        gathered(tmp_path)
    _row(tmp_path, "fan-out", "lockstep", **row, digest=cell.digest)
    assert len(gathered(tmp_path)["rows"]) == 1


def test_the_grid_has_a_table_a_workload_and_names_what_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no rows"):
        gathered(tmp_path)
    fast = {"requests_per_s": 12_345.6, "p50_ms": 0.5, "p99_ms": 1.25, "rss_max_mb": 60.0}
    _row(tmp_path, "requests", "lockstep", medians=fast, rounds=[])
    _row(tmp_path, "requests", "kafka", error="no answer\nat all")
    _row(tmp_path, "requests", "lockstep", nodes=3, medians=fast, rounds=[])
    (tmp_path / "raw" / "requests").mkdir(parents=True)
    result = read(tmp_path)
    first, second = tables(result)
    assert first.startswith("### requests, 1 node\n") and second.startswith("### requests, 3 nodes\n")
    (line,) = (line for line in first.splitlines() if "partitions 16, rate 0" in line)
    assert "12,346 /s, 0.5 ms, 1.25 ms" in line and "failed" in line
    assert "kafka" not in second
    text = page([result])
    assert section(result) in text and "- requests/1n-kafka: no answer" in text
    assert "at all" not in text
