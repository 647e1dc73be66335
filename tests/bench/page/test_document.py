"""Which pages there are, and that the machine is told once."""

from __future__ import annotations

from bench.page.document import FIRST, pages
from tests.bench.outcomes import FACTS


def test_each_result_has_its_page_and_the_machine_is_told_once() -> None:
    shared = {
        "command": "python -m bench growth",
        **FACTS,
        "failures": [],
    }
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {**shared, "kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    feed = {**shared, "kind": "feed", "command": "python -m bench feed", "sizes": [], "rounds": []}
    found = pages([store], ["a.json"])
    assert list(found) == [FIRST, "benchmarks/logstore.md"] and feed["kind"] == "feed"
    first, other = found.values()
    assert "- P, 2 CPUs" in first and "P, 2 CPUs" not in other and "- commit 0123456789ab" in other
    assert "](benchmarks/logstore.md)" in first and "](../benchmarks.md)" in other
    cells_of_other_machines = {**store, "machine": {**store["machine"], "kernel": "7"}}
    assert "kernel 7" in pages([cells_of_other_machines])[FIRST]
