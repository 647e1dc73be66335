"""The grid's tables and what is said of them, from small results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.full.section import collect_rows, section
from bench.full.tables import tables
from bench.full.workloads import read_all
from bench.page.document import page, read
from tests.bench.full.kept_rows import rounds, write_row


def test_each_table_says_where_it_was_measured_if_not_where_the_newest_was(tmp_path: Path) -> None:
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


def test_a_table_says_which_targets_were_not_measured_in_turns(tmp_path: Path) -> None:
    figures = {"requests_per_s": 1.0}
    for target in ("lockstep", "kafka", "kafka-flush"):
        write_row(tmp_path, "requests", target, medians=figures, rounds=[], started="2026-01-02T03:04:05Z")
    (table,) = tables(collect_rows(tmp_path))
    assert "in turns" not in table
    write_row(tmp_path, "requests", "lockstep", medians=figures, rounds=[], started="2026-01-02T09:00:00Z")
    (table,) = tables(collect_rows(tmp_path))
    assert "in turns: `kafka`, `kafka-flush` at 2026-01-02T03:04; `lockstep` at 2026-01-02T09:00." in table


def test_a_table_says_by_which_figures_lockstep_is_behind_which_kafka(tmp_path: Path) -> None:
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
    assert "in 1 of 2 closed loops and in 1 of all 2 cells" in section(collect_rows(tmp_path))


def test_at_a_rate_the_p50_speaks_for_the_rounds(tmp_path: Path) -> None:
    row = rounds("p50_ms", 0.1, 0.13, requests_per_s=500.0)
    write_row(tmp_path, "requests", "lockstep", point={"rate": 500}, **row)
    assert "500 /s, 0.115 ms ~" in section(collect_rows(tmp_path))


def test_batches_are_told_in_megabytes_of_messages(tmp_path: Path) -> None:
    settings = {"kind": "produce", "minutes": 0.05, "message_bytes": 10_000, "batch_bytes": 16_384}
    row = rounds("records_per_s", 2_000.0, 2_000.0, requests_per_s=2_000.0, mb_per_s=23.4)
    write_row(tmp_path, "batches", "lockstep", settings=settings, **row)
    (table,) = tables(collect_rows(tmp_path))
    assert "| 20 MB/s" in table and "/s, " not in table.splitlines()[-1]
    abouts = {each.name: each.about for each in read_all()}
    assert "one a request" in abouts["throughput-10kb"] and "16 KB" in abouts["throughput-1kb"]


def test_a_fan_out_says_what_each_fetch_was_answered_with(tmp_path: Path) -> None:
    settings = {"kind": "fan_out"}
    for target, fetches in (("lockstep", 8.0), ("kafka", 50.0)):
        row = rounds("mb_per_s", 100.0, 100.0, fetches=fetches, bytes=1_000_000)
        write_row(tmp_path, "fans", target, settings=settings, point={"groups": 8}, **row)
    text = section(collect_rows(tmp_path))
    assert "`lockstep` 125 KB, `kafka` 20 KB" in text and "fetch.min.bytes=1" in text


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
