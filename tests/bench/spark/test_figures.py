"""Spark's figures: from seconds to ratios with intervals."""

from __future__ import annotations

import pytest

from bench.spark.figures import highest, rows
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
