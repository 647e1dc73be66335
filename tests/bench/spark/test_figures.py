"""Spark's figures: from seconds to ratios with intervals."""

from __future__ import annotations

import pytest

from bench.page.document import read
from bench.spark.figures import highest, rows, seconds_of
from tests.bench.spark.results import KEPT, spark_result


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


def test_reads_from_a_broker_just_started_are_in_no_figure_of_the_kept_result() -> None:
    kept = read(KEPT)
    flat = kept["seconds"]["source.kafka.kafka.1"]
    assert seconds_of(kept)["source.kafka.kafka.1"] == [flat[:2], flat[3:]]
    assert max(flat) == flat[2], "the one that is left out is the one of the cold machine"
    by_name = {row["ratio"]: row for row in rows(kept)}
    before = {row["name"]: row["value"] for row in kept["ratios"]}
    assert by_name["source.stock.1"]["value"] < before["source.stock.1"]
    assert all(len(row["pairs"]) >= 2 for name, row in by_name.items() if name != "commit_ms")
