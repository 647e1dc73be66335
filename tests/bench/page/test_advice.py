"""When to use which: what the figures win and lose."""

from __future__ import annotations

from bench.full.lookup import Grid
from bench.page import advice
from tests.bench.full.kept_rows import rounds
from tests.bench.page.results import grid_of, grid_row, ratio_row


def test_only_what_the_figures_lose_is_a_reason_for_kafka() -> None:
    shipped = grid_row("kafka", **rounds("requests_per_s", 200.0, 200.0))
    flushing = grid_row("lockstep", **rounds("requests_per_s", 100.0, 100.0))
    for rate, is_reason in ((100.0, True), (300.0, False)):
        plain = grid_row("lockstep-os", **rounds("requests_per_s", rate, rate))
        text = advice.section({}, grid_of(plain, shipped, flushing))
        assert ("times as many single messages" in text) is is_reason
        assert not is_reason or "Kafka answers 2.0 times" in text
    slower, sooner = (
        {"headline": {"comparison": [ratio_row("latency1.p50.cross", value)]}} for value in (2.6, 0.5)
    )
    assert "1 ms to 2.6 on one node" in advice.section(slower, Grid(None))
    assert advice.section(sooner, Grid(None)) == ""


def test_only_what_the_figures_win_is_a_reason_for_lockstep() -> None:
    for rate in (90.0, 300.0):
        rows = []
        for workload in ("requests-1kb", "throughput-1kb"):
            for target, value in (("lockstep", rate), ("kafka-flush", 100.0)):
                rows.append(grid_row(target, workload=workload, **rounds("requests_per_s", value, value)))
        text = advice.ahead({}, grid_of(*rows))
        said = "3.0 times as many single messages and 3.0 times as many batches on one node, both flushing."
        assert (said in text) is (rate > 100)
        assert bool(text) is (rate > 100)
    results = {"headline": {"comparison": [ratio_row("memory", 0.09), ratio_row("restart", 1.2)]}}
    assert "0.09 of Kafka's memory, on one node" in advice.ahead(results, Grid(None))
    results["one"] = {"comparison": [{**ratio_row("memory", 0.19), "ratio": "memory.max"}]}
    assert "0.09 of Kafka's memory (0.19 with 10,000 members of groups), on" in advice.ahead(
        results, Grid(None)
    )
