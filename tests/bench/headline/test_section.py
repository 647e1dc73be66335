"""The headline's section of the page, and what speaks against its figures."""

from __future__ import annotations

from bench.page.document import page
from bench.page.losses import losses
from tests.bench.headline.results import headline_result


def test_the_page_begins_with_the_headline_and_says_where_lockstep_loses() -> None:
    result = headline_result([90.0, 95.0, 91.0], 100.0)
    text = page([result])
    assert text.startswith("# Benchmarks\n") and text.count("\n# Benchmarks: ") == text.count("\n# ")
    assert text.index("0 of 15 goals met") < text.index("## Where Lockstep loses")
    (line,) = (line for line in text.splitlines() if "| os" in line and "| lockstep" in line)
    assert [cell.strip() for cell in line.split("|")[4:11]] == [
        "3,000",
        "0.016",
        "0.06",
        "0.064",
        "50",
        "",
        "97%",
    ]
    assert "on one node 900 records of 1 KB count." in text
    assert "MISSED" in text and "Failed: session 2: broke" in text and "the rest" not in text
    assert "kept in nanoseconds" not in text, "these blocks have no raw latencies"
    lost = losses([result])
    assert [row[2] for row in lost] == ["0.92", "0.92"]
    assert "1 of them are a Lockstep that flushes" in text


def test_what_speaks_against_the_figures_is_said() -> None:
    result = headline_result([90.0, 95.0], 100.0)
    text = page([result])
    assert "No figures, and so not met: one node, 1 partition: throughput, both flush; " in text
    assert "(2 of them)" in text
    assert "38% in the median block of kafka's and 75% in the worst, 38% in the median" in text
    assert "the hypervisor took 2% at most" in text
    assert "1 of 4 sessions were measured while compiler threads still used up to 31% of a CPU" in text
    assert "tried once more: n3_latency1: not the leader; n3_latency1: not the leader\n" in text
    result["comparison"][0]["pairs"].pop()
    assert "(1 and 2 of them, as a session failed; 2 were to be)" in page([result])
    quiet = headline_result([100.0], 100.0)
    quiet["sessions"] = quiet["sessions"][1:]
    assert "compiler threads still" not in page([quiet]) and "tried once more" not in page([quiet])
