"""Spark's figures: from seconds to ratios with intervals, the section, and what the kept result comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.page.document import page, read
from bench.page.losses import losses
from bench.spark import command, plots
from bench.spark.command import main
from bench.spark.figures import highest, rows, seconds_of
from bench.spark.section import against_kafka
from compat_tests.line_driver import DriverFailed
from compat_tests.spark_driver import JARS
from compat_tests.targets import ROOT

KEPT = ROOT / "bench" / "results" / "20261123-133030-spark.json"


def _result(theirs: list[list[float]], **more: Any) -> dict[str, Any]:
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    return {
        "format": 1,
        "kind": "spark",
        "command": "python -m bench spark",
        "started": "2026-01-01T00:00:00Z",
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "records": 1000,
        "record_bytes": 1000,
        "rounds": len(theirs),
        "seconds": {
            "source.lockstep.kafka.1": [[1.0, 3.0, 2.0] for _ in theirs],
            "source.kafka.kafka.1": theirs,
            **more,
        },
    }


def test_a_ratio_is_of_the_medians_of_a_round_with_an_interval_over_the_rounds() -> None:
    (row,) = rows(_result([[8.0, 1.0, 9.0], [4.0, 4.0, 2.0]]))
    assert row["ratio"] == "source.stock.1" and row["pairs"] == [4.0, 2.0]
    assert row["value"] == pytest.approx(8**0.5)
    assert row["low"] < 1.0 < row["value"] < row["high"]
    assert (row["met"], row["sure"]) == (True, False)
    (alone,) = rows(_result([[1.0]]))
    assert (alone["low"], alone["met"], alone["sure"]) == (None, False, False)


def test_the_sinks_and_the_commit() -> None:
    seconds = {
        "sink.kafka": [[3.0], [2.0]],
        "sink.lockstep": [[2.0], [2.0]],
        "commit": [[0.2, 0.06, 0.01]],
    }
    by_name = {row["ratio"]: row for row in rows(_result([], **seconds))}
    assert by_name["sink"]["pairs"] == [1.5, 1.0] and by_name["sink"]["subject"] == 250
    assert by_name["commit_ms"]["value"] == pytest.approx(60) and by_name["commit_ms"]["met"] is False
    assert highest([5.0, 1.0, 3.0], 0.9) == 5.0 and highest([5.0, 1.0, 3.0], 0.5) == 3.0


def test_reads_from_a_broker_just_started_are_in_no_figure_of_the_kept_result() -> None:
    kept = read(KEPT)
    flat = kept["seconds"]["source.kafka.kafka.1"]
    assert seconds_of(kept)["source.kafka.kafka.1"] == [flat[:2], flat[3:]]
    assert max(flat) == flat[2], "the one that is left out is the one of the cold machine"
    by_name = {row["ratio"]: row for row in rows(kept)}
    before = {row["name"]: row["value"] for row in kept["ratios"]}
    assert by_name["source.stock.1"]["value"] < before["source.stock.1"]
    assert all(len(row["pairs"]) >= 2 for name, row in by_name.items() if name != "commit_ms")


def test_the_page_has_the_section_and_counts_only_comparisons_with_kafka(tmp_path: Path) -> None:
    text = page([read(KEPT)], [KEPT.name])
    assert f"Made from, in `bench/results`: `{KEPT.name}`.\n" in text
    assert "## Spark" in text and "](../spark.svg)" in text and "| an epoch, our sink " in text
    assert "In none of 2 comparisons" in text and "met?" in text
    lost = _result([[1.0, 1.0, 1.0]], **{"source.lockstep.lockstep.1": [[9.0]]})
    assert [row[0] for row in losses([against_kafka(lost)])] == ["spark"]
    assert "on these pages Kafka is better in these 1" in page([lost])
    picture = tmp_path / "spark.svg"
    assert main(["--plot", str(KEPT), "--picture", str(picture)]) == 0
    drawn = picture.read_bytes()
    plots.draw(read(KEPT), picture)
    assert picture.read_bytes() == drawn and b"<svg" in drawn
    plots.draw(_result([]), picture)  # with little in it, too


def test_documents_quote_what_the_page_has() -> None:
    """The figures and the result that they are of, in the two documents that repeat them."""
    section = (ROOT / "docs" / "benchmarks" / "spark.md").read_text()
    documents = [(ROOT / "docs" / name).read_text() for name in ("spark.md", "spark_sink.md")]
    source, sink = [" ".join(document.split()) for document in documents]
    rows = [[each.strip() for each in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line]
    of = {row[0]: row for row in rows}
    for title, row in of.items():
        if ": our source over" in title or title.startswith("Spark's own source"):
            assert f"{row[3]} times" in source, title
    ours, theirs, commit = (
        float(of[title][2])
        for title in ("an epoch, our sink", "an epoch, Spark's own sink", "of it the commit")
    )
    assert of["into Lockstep: our exactly-once sink over Spark's own"][3] + " times the rows" in sink
    assert f"a commit takes {commit:g} ms" in sink
    assert f"the whole epoch {ours:g} ms where Spark's own sink takes {theirs:g} ms" in sink
    (run,) = [line.removeprefix("- ") for line in section.splitlines() if "python -m bench" in line]
    first = (ROOT / "docs" / "benchmarks.md").read_text()
    (made_from,) = [line for line in first.splitlines() if line.startswith("Made from")]
    (kept,) = [each for each in made_from.split("`") if each.endswith("-spark.json")]
    for document in (source, sink):
        assert f"{run} (bench/results/{kept}," in document


class _Spark:
    """Answers as the driver does; the Apache Kafka that was just started is slow once."""

    def __init__(self, *words: Any) -> None:
        self.seen: list[str] = []

    def ask(self, what: str, settings: object, **fields: Any) -> Any:
        self.seen.append(what)
        if what == "read":
            cold = fields["bootstrap"] not in self.seen
            self.seen.append(fields["bootstrap"])
            return {"records": 100, "bytes": 100_000, "seconds": 9.0 if cold else 2.0}
        if what == "write":
            return {"records": fields["records"], "seconds": 1.0 if fields["format"] == "lockstep" else 2.0}
        own = fields["format"] == "kafka"
        return {"commits": [] if own else [9.0] * 5 + [0.01] * 3, "epochs": [9.0] * 5 + [0.1] * 3}

    def close(self) -> None:
        self.seen.append("closed")


class _Broker:
    def __init__(self, name: str) -> None:
        self.bootstrap = name

    def __enter__(self) -> _Broker:
        return self

    def __exit__(self, *words: object) -> None:
        pass


def test_a_run_alternates_and_keeps_what_was_warm_by_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def target(run: command.Run, kind: str, name: str) -> _Broker:
        order.append(name)
        return _Broker(name)

    monkeypatch.setattr(command, "LineDriver", _Spark)
    monkeypatch.setattr(command, "installed", lambda: Path("python"))
    monkeypatch.setattr(type(JARS), "jars", lambda jars: [])
    monkeypatch.setattr(command.Run, "target", target)
    monkeypatch.setattr(command, "fill", lambda *words: 100)
    monkeypatch.setattr(command, "Cluster", _Broker)
    monkeypatch.setattr(command, "create", lambda *words: None)
    where = ["--out", str(tmp_path / "kept")]
    assert main(["--rounds", "2", "--records", "100", *where]) == 0
    assert order == [
        *("source-0-lockstep", "source-0-kafka", "source-1-kafka", "source-1-lockstep", "sink"),
    ]
    (kept,) = (tmp_path / "kept").iterdir()
    result = read(kept)
    assert result["seconds"]["source.kafka.kafka.1"] == [[2.0, 2.0], [2.0, 2.0]], "9.0 was cold"
    assert result["seconds"]["sink.kafka"] == [[2.0]] * 4 and result["seconds"]["commit"] == [[0.01] * 3]
    values = {row["ratio"]: row["value"] for row in result["ratios"]}
    assert values["source.stock.8"] == pytest.approx(1.0) and values["sink"] == pytest.approx(2.0)
    assert values["commit_ms"] == pytest.approx(10.0) and "## Spark" in page([result])
    assert "our exactly-once sink" in capsys.readouterr().out

    def slow(spark: _Spark, what: str, settings: object, **fields: Any) -> Any:
        raise DriverFailed("no answer")

    monkeypatch.setattr(_Spark, "ask", slow)
    assert main(["--source", *where]) == 1 and len(list((tmp_path / "kept").iterdir())) == 1
