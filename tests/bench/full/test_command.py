"""The grid for real, with small workloads: rows, raw nanoseconds, resuming, failures that are kept."""

from __future__ import annotations

import gzip
import hashlib
import json
from array import array
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.baselines import targets
from bench.full import cells, command, work
from bench.full.cells import cells_of, read, read_all
from bench.full.command import plan
from bench.full.rows import Rows
from bench.sessions import groups
from bench.settings import FLUSH
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import TargetFailed
from tests.bench.full.grid import GOOD, TINY, Grid, workload_file


def test_rows_are_added_until_nothing_remains(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid.run("--list") == 0
    assert "0 of 2 cells are there, 2 remain" in capsys.readouterr().out
    assert grid.run("--limit", "0") == 0 and not grid.out.exists()
    assert grid.run() == 0
    rows = grid.rows()
    assert set(rows) == {f"1n-lockstep-partitions1-producers2-rate{rate}" for rate in (0, 100)}
    row = json.loads((grid.out / "tiny" / "1n-lockstep-partitions1-producers2-rate100.json").read_text())
    figures = row["medians"]
    assert figures["requests"] == pytest.approx(30, abs=2)
    assert figures["records_per_s"] <= 320, "what was answered within, which a busy machine makes less"
    assert figures["flushes_per_mb"] > 0 and figures["device_bytes_per_byte"] > 0
    assert figures["rss_max_mb"] > 10 and "cpu_s_per_million_records" in figures
    (block,) = row["rounds"]
    packed = (grid.out / "raw" / "tiny" / block["raw"]["file"]).read_bytes()
    data = gzip.decompress(packed)
    assert hashlib.sha256(data).hexdigest() == block["raw"]["sha256"]
    raw = array("q")
    raw.frombytes(data)
    assert len(raw) == block["raw"]["samples"] == figures["requests"]
    assert max(raw) / 1e6 == pytest.approx(figures["max_ms"])

    # a quick run's rows are no rows of another one
    capsys.readouterr()
    where = ["--workloads", str(grid.workloads), "--out", str(grid.out)]
    assert command.main(["--list", *where]) == 0
    assert "0 of 2 cells are there, 2 remain" in capsys.readouterr().out

    # nothing is measured twice, and what is another cell now is measured again
    before = {name: row["started"] for name, row in rows.items()}
    assert grid.run() == 0
    assert {name: row["started"] for name, row in grid.rows().items()} == before
    grid.write(TINY.replace("rate = [0, 100]", "rate = [0]").replace("in_flight = 3", "in_flight = 4"))
    capsys.readouterr()
    assert grid.run("--list") == 0
    assert "0 of 1 cells are there, 1 remain" in capsys.readouterr().out


def test_a_table_that_was_begun_on_another_machine_is_begun_again(
    grid: Grid, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.write(TINY.replace("[0, 100]", "[0]"))
    assert grid.run() == 0
    (path,) = (grid.out / "tiny").glob("*.json")
    cells_of_other_machines = path.read_text().replace('"kernel": "', '"kernel": "0')
    path.write_text(cells_of_other_machines)
    assert grid.run() == 0
    assert path.read_text() == cells_of_other_machines, "nothing of it is missing"

    both = TINY.replace("[0, 100]", "[0]").replace('["lockstep"]', '["lockstep", "lockstep-os"]')
    grid.write(both)
    assert grid.run("--target", "lockstep-os") == 1
    refused = "rate0 was measured elsewhere, and a table is of one machine"
    assert refused in capsys.readouterr().err
    assert grid.run() == 0
    assert "begun on another machine: 1 cells are measured again" in capsys.readouterr().err
    found = [json.loads(each.read_text())["machine"]["kernel"] for each in path.parent.glob("*.json")]
    assert len(found) == 2 and found[0] == found[1] and not found[0].startswith("0")


def test_a_cell_that_fails_has_a_row_with_the_failure(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    # one message is larger than a topic takes by default
    grid.write(TINY.replace("message_bytes = 100", "message_bytes = 2000000").replace("[0, 100]", "[0]"))
    assert grid.run() == 1
    (row,) = grid.rows().values()
    assert "error code 10" in str(row["error"]) and "medians" not in row
    capsys.readouterr()
    assert grid.run() == 1, "it is not measured again, and is still a failure"
    said = capsys.readouterr().err
    assert "1 of 1 cells are there, 1 of them failed (--again), 0 remain" in said and "error code 10" in said
    grid.write(TINY.replace("[0, 100]", "[0]"))
    assert grid.run("--again") == 0
    (row,) = grid.rows().values()
    assert "error" not in row


def test_what_failed_within_a_command_fails_its_cell(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = [{"ratio": "produce.flush", "value": 3.0, "met": True}]
    result = {"comparison": compared, "failures": ["session 2: broke"]}

    def ran(words: list[str], directory: Path) -> int:
        (Path(words[-1]) / "result.json").write_text(json.dumps(result))
        return 1 if result["failures"] else 3

    monkeypatch.setattr(command, "run_child", ran)
    grid.write('name = "tiny"\nabout = "x"\nkind = "command"\ncommand = ["all"]\n')
    assert grid.run() == 1
    assert "FAILED: tiny/1n-all: session 2: broke" in capsys.readouterr().err
    assert grid.run() == 1, "it has a row, which says so"
    result["failures"] = []
    assert grid.run("--again") == 0
    row = json.loads((grid.out / "tiny" / "1n-all.json").read_text())
    (block,) = row["rounds"]
    assert block["failures"] == [] and block["figures"] == {"produce.flush": 3.0}


def test_a_target_that_is_not_here_is_skipped_by_name(
    grid: Grid, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> object:
        raise ToolchainMissing("not built\nat all")

    tansu = replace(targets.TARGETS["tansu"], check=absent)
    brokers = tuple(tansu if each.name == "tansu" else each for each in targets.BROKERS)
    monkeypatch.setattr("bench.full.command.BROKERS", brokers)
    grid.write(TINY.replace('["lockstep"]', '["tansu"]'))
    assert grid.run() == 0
    said = capsys.readouterr().err
    assert "SKIPPED tansu: not built" in said and "2 remain" in said
    assert not grid.out.exists()


def test_wishes_that_cannot_be_read_are_answered(grid: Grid, capsys: pytest.CaptureFixture[str]) -> None:
    for text, words, said in (
        (TINY, ("--only", "nothing"), "--only nothing: no such workload"),
        ("kind = 1", ("--list",), "tiny.toml"),
        ("", ("--list", "--workloads", str(grid.out.parent)), "no workload in"),
    ):
        grid.write(text)
        with pytest.raises(SystemExit) as ended:
            grid.run(*words)
        assert ended.value.code == 2 and said in capsys.readouterr().err


def test_what_is_measured_to_its_end_stays_when_its_session_breaks_later(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(session: object, cell: cells.Cell, policy: str, keep: object) -> dict[str, Any]:
        if cell.at["rate"]:
            raise TargetFailed("it died")
        return {"figures": {"requests_per_s": 1.0}, "proven": True}

    monkeypatch.setattr(command, "measure", measured)
    assert grid.run() == 1
    rows = grid.rows()
    assert rows["1n-lockstep-partitions1-producers2-rate0"]["medians"] == {"requests_per_s": 1.0}
    assert "it died" in str(rows["1n-lockstep-partitions1-producers2-rate100"]["error"])


def test_sessions_are_mirrored_and_targets_share_a_broker(tmp_path: Path) -> None:
    workload = read(workload_file(tmp_path, GOOD))
    order = [(number, broker.name) for number, broker in plan(cells_of(workload, 1), 2)]
    one = ["lockstep", "kafka", "kfake"]
    assert order == [*((0, name) for name in one), *((1, name) for name in one[::-1])]


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
