"""The grid's tables and what is said of them, from small results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.figures.origins import MixedMachines
from bench.full.cells import cells_of, read_all
from bench.full.rows import figures_with_costs, row_medians
from bench.full.section import collect_rows, comparisons, section
from bench.full.tables import tables
from bench.page.document import page, read
from compat_tests.targets import ROOT
from tests.bench.full.grid import rounds, write_row


def test_each_table_names_its_machine_if_it_is_not_the_newest_rows(tmp_path: Path) -> None:
    figures = {"requests_per_s": 1.0}
    write_row(tmp_path, "requests", "lockstep", medians=figures, rounds=[])
    machine = {**collect_rows(tmp_path)["machine"], "kernel": "7"}
    later = "2026-02-01T00:00:00Z"
    write_row(tmp_path, "requests", "lockstep", 3, medians=figures, rounds=[], machine=machine, started=later)
    own: dict[str, Any] = {
        "settings": {"kind": "command"},
        "machine": {**machine, "kernel": "8"},
        "rounds": [],
    }
    write_row(tmp_path, "whole", "contention", **own)
    result = collect_rows(tmp_path)
    assert result["machine"] == machine, "of the newest cells; a comparison has its own"
    one, three = tables(result)
    assert "\n\nMeasured elsewhere, kernel: 6.\n\n|" in one and "Measured elsewhere" not in three


def test_a_table_lists_the_figures_in_which_lockstep_is_behind_each_kafka(tmp_path: Path) -> None:
    for producers, ours, shipped in ((1, 90.0, 100.0), (16, 110.0, 100.0)):
        for target, rate in (("lockstep", ours), ("kafka", shipped), ("kafka-flush", 20.0)):
            figures = {"requests_per_s": rate, "p99_ms": 1.0 if target == "lockstep" else 2.0}
            point = {"producers": producers}
            write_row(tmp_path, "requests", target, medians=figures, rounds=[], point=point)
    behind = "is behind:\n\n- requests answered a second: behind `kafka` in 1 of 2\n"
    assert behind in section(collect_rows(tmp_path))
    assert "p99: behind" not in section(collect_rows(tmp_path))
    for target, seconds in (("lockstep", 0.5), ("kafka", 9.0)):
        figures = {"first_ack_s": seconds}
        write_row(tmp_path, "starting", target, medians=figures, rounds=[], settings={"kind": "start"})
    (table,) = (each for each in tables(collect_rows(tmp_path)) if each.startswith("### starting"))
    assert "behind in no point" in table and "session.timeout.ms" in table


def test_at_a_rate_that_all_keep_to_only_latencies_are_compared(tmp_path: Path) -> None:
    for target, rate, slow in (("lockstep", 499.0, 1.5), ("kafka", 500.0, 1.0)):
        figures = {"requests_per_s": rate, "p50_ms": slow}
        write_row(tmp_path, "requests", target, medians=figures, rounds=[], point={"rate": 500})
    (table,) = tables(collect_rows(tmp_path))
    assert "- p50: behind `kafka` in 1 of 1" in table and "requests answered a second: behind" not in table


def test_the_grid_has_a_table_a_workload_and_names_what_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no rows"):
        collect_rows(tmp_path)
    fast = {"requests_per_s": 12_345.6, "p50_ms": 0.5, "p99_ms": 1.25, "rss_max_mb": 60.0}
    write_row(tmp_path, "requests", "lockstep", medians=fast, rounds=[])
    write_row(tmp_path, "requests", "kafka", error="no answer\nat all")
    write_row(tmp_path, "requests", "lockstep", nodes=3, medians=fast, rounds=[])
    (tmp_path / "raw" / "requests").mkdir(parents=True)
    result = read(tmp_path)
    first, second = tables(result)
    assert first.startswith("### requests, 1 node\n") and second.startswith("### requests, 3 nodes\n")
    (line,) = (line for line in first.splitlines() if "partitions 16, rate 0" in line)
    assert "12,346 /s, 0.5 ms, 1.25 ms" in line and "failed" in line
    assert "kafka" not in second
    text = page([result])
    assert all(table in text for table in (first, second)) and "- requests/1n-kafka: no answer" in text
    assert "at all" not in text


def _behind(
    tmp_path: Path, ours: tuple[float, ...], theirs: tuple[float, ...], target: str = "lockstep"
) -> str:
    write_row(tmp_path, "requests", target, **rounds("requests_per_s", *ours))
    write_row(tmp_path, "requests", "kafka", **rounds("requests_per_s", *theirs))
    (table,) = tables(collect_rows(tmp_path))
    return table


def test_what_lies_within_the_rounds_spread_is_not_behind(tmp_path: Path) -> None:
    lost = "- requests answered a second: behind `kafka` in 1 of 1"
    assert lost in _behind(tmp_path, (80.0, 90.0), (91.0, 100.0))
    assert "`lockstep` is behind in no point." in _behind(tmp_path, (80.0, 92.0), (91.0, 100.0))


def test_a_lockstep_that_flushes_nothing_is_held_against_such_a_kafka_alone(tmp_path: Path) -> None:
    text = _behind(tmp_path, (80.0, 90.0), (91.0, 100.0), "lockstep-os")
    assert (
        "Points where `lockstep-os` is behind:\n\n- requests answered a second: behind `kafka` in 1 of 1"
        in text
    )
    write_row(tmp_path, "requests", "kafka-flush", **rounds("requests_per_s", 200.0, 200.0))
    (table,) = tables(collect_rows(tmp_path))
    assert "behind `kafka` in 1 of 1" in table and "`kafka-flush` in" not in table


def test_cells_whose_rounds_are_far_apart_are_marked_and_counted(tmp_path: Path) -> None:
    text = _behind(tmp_path, (100.0, 121.0), (100.0, 119.0))
    assert "| 110 /s ~   | 110 /s  |" in text
    assert "for 1 of 2 closed loops and for 1 of all 2 cells" in section(collect_rows(tmp_path))


def test_kills_of_a_leader_have_a_worst_and_a_count_and_errors_are_in_no_median(tmp_path: Path) -> None:
    row = rounds("first_ack_s", 0.1, -0.8, 0.3)
    write_row(tmp_path, "losing", "lockstep", 3, settings={"kind": "failover"}, point={}, **row)
    (table,) = tables(collect_rows(tmp_path))
    assert "| 0.2 s, at most 0.3 s, 3 kills; 1 of 3 rounds did not see the kill, another node led" in table
    row = rounds("first_ack_s", 5.0, -0.8, 6.0)
    write_row(tmp_path, "losing", "lockstep", 3, settings={"kind": "failover"}, point={}, **row)
    row = rounds("first_ack_s", 1.0, 2.0)
    write_row(tmp_path, "losing", "kafka", 3, settings={"kind": "failover"}, point={}, **row)
    (table,) = tables(collect_rows(tmp_path))
    assert "behind `kafka` in 1 of 1" in table


def test_the_grids_whole_comparisons_are_given_to_the_page_and_are_no_table(tmp_path: Path) -> None:
    rounds = [{"result": {"comparison": [], "kind": "nodes3"}}]
    write_row(tmp_path, "nodes", "nodes3", settings={"kind": "command"}, point={}, rounds=rounds)
    result = collect_rows(tmp_path)
    kept_in = "full/nodes/1n-nodes3.json"
    assert comparisons(result) == [{"comparison": [], "kind": "nodes3", "kept_in": kept_in}]
    assert "### nodes" not in section(result)


def test_failures_within_a_command_are_reported(tmp_path: Path) -> None:
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


def test_unproven_rounds_do_not_count_and_costs_are_of_what_was_acknowledged() -> None:
    device = {"flushes": 50, "write_bytes": 3_000_000}
    block = {
        "figures": {"total_records": 2_000, "requests_per_s": 10.0, "words": "none"},
        "device": device,
        "broker_cpu_s": 0.5,
        "bytes": 1_000_000,
        "proven": True,
    }
    figures = figures_with_costs(block)
    assert figures["cpu_s_per_million_records"] == 250
    assert (figures["flushes_per_mb"], figures["device_bytes_per_byte"]) == (50, 3)
    assert "words" not in figures
    unproven_blocks = {**block, "figures": {"requests_per_s": 99.0}, "proven": False}
    assert row_medians([block, unproven_blocks])["requests_per_s"] == 10.0
    assert row_medians([unproven_blocks]) == {}
