"""Spark's figures: from seconds to ratios with intervals."""

from __future__ import annotations

import pytest

from bench.spark.figures import highest, rows
from compat_tests.targets import ROOT
from tests.bench.spark.results import spark_result


def test_a_ratio_is_of_the_medians_of_a_round_with_an_interval_over_the_rounds() -> None:
    (row,) = rows(spark_result([[8.0, 1.0, 9.0], [4.0, 4.0, 2.0]]))
    assert row["ratio"] == "source.stock.1" and row["pairs"] == [4.0, 2.0]
    assert row["value"] == pytest.approx(8**0.5)
    assert row["low"] < 1.0 < row["value"] < row["high"]
    assert (row["met"], row["sure"]) == (True, False)
    (alone,) = rows(spark_result([[1.0]]))
    assert (alone["low"], alone["met"], alone["sure"]) == (None, False, False)


def test_the_sinks_and_the_commit() -> None:
    seconds = {
        "sink.kafka": [[3.0], [2.0]],
        "sink.lockstep": [[2.0], [2.0]],
        "commit": [[0.2, 0.06, 0.01]],
    }
    by_name = {row["ratio"]: row for row in rows(spark_result([], **seconds))}
    assert by_name["sink"]["pairs"] == [1.5, 1.0] and by_name["sink"]["subject"] == 250
    assert by_name["commit_ms"]["value"] == pytest.approx(60) and by_name["commit_ms"]["met"] is False
    assert highest([5.0, 1.0, 3.0], 0.9) == 5.0 and highest([5.0, 1.0, 3.0], 0.5) == 3.0


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
