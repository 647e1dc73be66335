"""The seeds' figures beside ours, from small results."""

from __future__ import annotations

from typing import Any

from bench.page import seeds
from bench.player.points import FULL, GRPC, OPEN, TRANSACTIONS, Point, block_name
from tests.bench.page.results import logstore_run


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


def test_a_stream_at_its_cap_is_noted() -> None:
    result = {"stream_bytes_per_s": 87_000_000, "runs": [logstore_run("7c", 4096, mb_per_s=86.9)]}
    ((*_, figure, _),) = seeds.logstore_rows(result)
    assert figure == "4 KB: at most 86.9 MB/s, the whole offered load (a stream's cap: 87)"
    ((*_, figure, _),) = seeds.logstore_rows({**result, "stream_bytes_per_s": 100_000_000})
    assert figure == "4 KB: at most 86.9 MB/s"
