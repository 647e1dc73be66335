"""The seeds' figures beside ours, from small results."""

from __future__ import annotations

from typing import Any

from bench.full.lookup import Grid
from bench.page import seeds
from bench.player.points import FULL, GRPC, OPEN, TRANSACTIONS, Point, block_name
from tests.bench.page.results import logstore_run


def _naive(written: float, space: int) -> dict[str, Any]:
    return {
        "replicas": [{"bytes_per_payload_byte": {"log": written}}],
        "log_bytes": space,
        "device": {"write_bytes": space},
        "allocated_bytes": space,
    }


def test_seed_001_stands_beside_what_was_flushed_here() -> None:
    result = {
        "runs": [
            logstore_run("7a", 128, False, **_naive(1.1, 100)),
            logstore_run("7a", 128, True, **_naive(2.2, 250)),
            logstore_run("7b", 1024, mb_per_s=10.0, payloads_per_s=990.0, cpu_share={"leader": 0.5}),
            logstore_run("7b", 1024, mb_per_s=10.5, payloads_per_s=1100.0, cpu_share={"leader": 0.1}),
            logstore_run("7b", 512, mb_per_s=99.0),
            logstore_run("7d", 1024, mb_per_s=30.0, payloads_per_s=990.0),
            logstore_run("7d", 1024, mb_per_s=20.0, payloads_per_s=600.0),
            logstore_run("7d", 4096, mb_per_s=81.8),
            logstore_run("7c", 4096, mb_per_s=80.0),
            {**logstore_run("7c", 4096, mb_per_s=900.0), "store": {"flush": False}},
        ]
    }
    found = {row[1]: row[3] for row in seeds.logstore_rows(result)}
    assert found["7a"] == "writes 0.50, space 0.40 of the naive store's"
    assert found["7b"] == (
        "1 KB, all batch sizes: 10.00 to 10.50 MB/s, all that was offered; "
        "the leader took 50% to 10% of a CPU"
    )
    assert found["7c"] == "4 KB: at most 80.0 MB/s"
    assert found["7d"] == "1 KB, 1 to 5 replicas: 20.00 to 30.00 MB/s; 4 KB: 81.8 MB/s"


def test_seed_000_has_both_loops_and_a_bound_takes_the_highest() -> None:
    def block(system: str, loop: str, point: Point, **figures: float) -> dict[str, Any]:
        return {"name": block_name(system, loop, point), "figures": {"per_s": 8.0, **figures}, "proven": True}

    blocks = [
        block(GRPC, OPEN, Point(2, 10), player_mean_ms=0.2),
        block(GRPC, OPEN, Point(20, 10), player_mean_ms=0.3),
        block(TRANSACTIONS, OPEN, Point(10, 10), apply_mean_ms=70.0),
        {**block(GRPC, OPEN, Point(20, 10), player_mean_ms=9.9), "proven": False},
    ]
    axes = {"targets_keys": FULL.targets_keys, "keys_targets": FULL.keys_targets}
    result = {"axes": axes, "sessions": [{"blocks": blocks}]}
    rows = seeds.player_rows(result)
    by_figure = {row[2].split(":")[0]: row for row in rows}
    delay = by_figure["LogPlayer delay, average, all numbers of targets"]
    assert delay[2].endswith("< 0.32 ms") and delay[3] == "0.30 ms, open loop"
    assert by_figure["Kafka transactions, average"][3] == "70.00 ms, open loop"
    text = seeds.section({"player": result})
    assert "python -m bench player" not in text and "| 000" in text
    assert seeds.section({}) == ""


def test_a_stream_at_its_cap_is_said_to_have_had_no_more() -> None:
    result = {"stream_bytes_per_s": 87_000_000, "runs": [logstore_run("7c", 4096, mb_per_s=86.9)]}
    ((*_, figure, _),) = seeds.logstore_rows(result)
    assert figure == "4 KB: at most 86.9 MB/s, all that was offered (a stream's cap here: 87)"
    ((*_, figure, _),) = seeds.logstore_rows({**result, "stream_bytes_per_s": 100_000_000})
    assert figure == "4 KB: at most 86.9 MB/s"


def test_seed_002_stands_beside_what_comes_nearest_or_is_said_not_to_compare() -> None:
    row = {"ratio": "n3.latency1.p50.flush", "value": 0.5, "subject": 0.506, "baseline": 1.0}
    lost = {"ratio": "loss.g1", "value": 0.1, "subject_values": [0.1, 0.3, 0.9], "baseline_values": [9.0]}
    results = {
        "headline": {"comparison": [row]},
        "nodes3": {"comparison": [lost]},
        "logstore": {"runs": [logstore_run("7c", 4096, mb_per_s=81.92)]},
    }
    found = {(each[1], each[2].split(":")[0]): each[3] for each in seeds.ziplog_rows(results, Grid(None))}
    assert found["5", "one client"].endswith("p50 506 us")
    assert found["5", "1 to 256 clients"] == "not measured"
    assert found["4", "16.8 K records/s of 4 KB a shard, as its SSDs allow"].endswith("20,000/s at most")
    assert any("0.3 s, at most 0.9 s, 3 kills" in here for here in found.values())
    assert any("not comparable" in here for here in found.values())
    assert "003 and 004 (Waltz) state no figures" in seeds.section({"logstore": results["logstore"]})
