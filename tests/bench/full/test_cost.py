"""What the same work costs, of each broker."""

from __future__ import annotations

from pathlib import Path

from bench.full.section import collect_rows, section
from tests.bench.full.kept_rows import rounds, write_row


def test_what_the_same_work_costs_is_told_of_each_broker(tmp_path: Path) -> None:
    point = {"partitions": 16, "producers": 16, "rate": 0}
    for target, cpu in (("lockstep", 40.9), ("kafka-flush", 139.0)):
        row = rounds("requests_per_s", 100.0, 100.0)
        row["medians"] |= {"cpu_s_per_million_records": cpu, "rss_max_mb": 90.0, "flushes_per_mb": 2108.0}
        write_row(tmp_path, "cost", target, **{**row, "point": point})
    found = collect_rows(tmp_path)
    assert "What the same work costs" not in section(found), "of another workload"
    rows = [{**each, "workload": "requests-1kb"} for each in found["rows"]]
    lines = [line for line in section({**found, "rows": rows}).splitlines() if "| single messages |" in line]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells == [
        ["1", "single messages", "`lockstep`", "40.9", "90", "2,108", ""],
        ["1", "single messages", "`kafka-flush`", "139", "90", "2,108", ""],
    ]
