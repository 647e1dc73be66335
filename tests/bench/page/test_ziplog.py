"""Seed 002 beside what comes nearest."""

from __future__ import annotations

from bench.full.lookup import Grid
from bench.page import seeds, ziplog
from tests.bench.page.results import logstore_run


def test_seed_002_stands_beside_what_comes_nearest_or_is_said_not_to_compare() -> None:
    row = {"ratio": "n3.latency1.p50.flush", "value": 0.5, "subject": 0.506, "baseline": 1.0}
    lost = {"ratio": "loss.g1", "value": 0.1, "subject_values": [0.1, 0.3, 0.9], "baseline_values": [9.0]}
    results = {
        "headline": {"comparison": [row]},
        "nodes3": {"comparison": [lost]},
        "logstore": {"runs": [logstore_run("7c", 4096, mb_per_s=81.92)]},
    }
    found = {(each[1], each[2].split(":")[0]): each[3] for each in ziplog.rows(results, Grid(None))}
    assert found["5", "one client"].endswith("p50 506 us")
    assert found["5", "1 to 256 clients"] == "not measured"
    assert found["4", "16.8 K records/s of 4 KB a shard, as its SSDs allow"].endswith("20,000/s at most")
    assert any("0.3 s, at most 0.9 s, 3 kills" in here for here in found.values())
    assert any("not comparable" in here for here in found.values())
    assert "003 and 004 (Waltz) state no figures" in seeds.section({"logstore": results["logstore"]})
