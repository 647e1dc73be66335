"""Rows: medians of what is proven, and costs."""

from __future__ import annotations

from bench.full.rows import figures_with_costs, row_medians


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
