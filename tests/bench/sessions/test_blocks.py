"""What is read of the load tool's output."""

from __future__ import annotations

import pytest

from bench.sessions.blocks import parse_producer_performance
from bench.sessions.failures import RoundFailed

TOOL_OUTPUT = """\
133011 records sent, 26602.2 records/sec (25.98 MB/sec), 892.9 ms avg latency, 1137.0 ms max latency.
300000 records sent, 42140.750105 records/sec (41.15 MB/sec), 635.59 ms avg latency, 1021.00 ms max latency, \
630 ms 50th, 891 ms 95th, 1002 ms 99th, 1017 ms 99.9th.
200000 steady state records sent, 45207.956600 records/sec (44.15 MB/sec), 577.95 ms avg latency, \
777.00 ms max latency, 543 ms 50th, 729 ms 95th, 770 ms 99th, 774 ms 99.9th.
"""


def test_the_steady_state_of_the_load_tool_is_what_counts() -> None:
    figures = parse_producer_performance(TOOL_OUTPUT)
    assert figures["total_records"] == 300_000
    assert figures["records_per_s"] == pytest.approx(45207.9566)
    assert figures["mb_per_s"] == pytest.approx(45207.9566 * 1024 / 1e6, rel=1e-3)
    with pytest.raises(RoundFailed):
        parse_producer_performance(TOOL_OUTPUT.splitlines()[0])
