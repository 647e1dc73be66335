"""Quantiles of latencies."""

from __future__ import annotations

from array import array

from bench.load.latency import quantiles


def test_quantiles_are_nearest_rank() -> None:
    figures = quantiles(array("q", [value * 1_000_000 for value in range(1, 101)]))
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (51.0, 100.0, 100.0)
    assert figures["mean_ms"] == 50.5


def test_quantiles_are_named_as_tables_want_them() -> None:
    assert {"mean_ms", "p50_ms", "p90_ms", "p99_ms"} <= quantiles(array("q", [1])).keys()
