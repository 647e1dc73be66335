"""A player result, as it is kept, for tests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.player.backlogs import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from bench.player.points import (
    CLOSED,
    FULL,
    GOALS,
    GRPC,
    LOOPS,
    PLAIN,
    RATIOS,
    RAW,
    TRANSACTIONS,
    TWO_LEVEL,
    Point,
    block_name,
)
from bench.player.sessions import KAFKA, LOCKSTEP
from bench.sessions.jobs import Block
from bench.settings import FLUSH


def delay_block(name: str, apply_ms: float, player_ms: float | None = None, per_s: float = 8.0) -> Block:
    figures: dict[str, float] = {"per_s": per_s, "append_mean_ms": apply_ms / 2}
    for figure in ("mean", "p50", "p90", "p99"):
        figures[f"apply_{figure}_ms"] = apply_ms
        if player_ms is not None:
            figures[f"player_{figure}_ms"] = player_ms
    return {"name": name, "policy": FLUSH, "figures": figures, "proven": True}


def player_result() -> dict[str, Any]:
    ours = [
        delay_block(block_name(system, loop, point), 2.0, 0.2 + point.targets / 100)
        for point in FULL.points
        for loop in LOOPS
        for system in (GRPC, RAW)
    ]
    ours += [
        delay_block("sustained_t2_r25", 2.0, 0.2, 25.0),
        delay_block("sustained_t2_r100", 2.0, 0.3, 100.0),
        delay_block("sustained_t2_r400", 2.0, 0.5, 400.0),
    ]
    kafkas = [
        delay_block(block_name(system, loop, point), apply_ms)
        for point in FULL.points
        for loop in LOOPS
        for system, apply_ms in ((PLAIN, 5.0), (TRANSACTIONS, 30.0))
    ]
    kafkas.append(delay_block(block_name(TWO_LEVEL, CLOSED, Point(20, 10)), 9000.0))
    rest: list[Block] = [
        {"name": "throughput", "figures": {"records": 10, "records_per_s": 60_000.0, "mb_per_s": 60.0}},
        {
            "name": "recovery100",
            "figures": {"missed": 100, "recovery_s": 0.1, "reconnect_s": 0.05, "entries_per_s": 1000.0},
        },
        *(
            {
                "name": f"dummies{every}",
                "figures": {"entries": 500, "dummies": 2, "read_again": again, "start_s": 0.1},
            }
            for every, again in ((0, 499), (10, 7))
        ),
    ]
    rest += [
        {
            "name": name,
            "figures": {"apply_mean_ms": 1.0, "apply_p50_ms": 1.0, "apply_p99_ms": p99, "per_s": 50.0},
        }
        for name, p99 in ((OTHERS_CALM, 2.0), (OTHERS_STALLED, 2.2))
    ]
    memory = {"missed": 1_000_000, "calm_mb": 60.0, "most_mb": 70.0, "grown_mb": 10.0}
    rest.append({"name": MISSED_MEMORY, "figures": memory})
    rest = [{**block, "policy": FLUSH, "proven": True} for block in rest]
    sessions = [
        {"side": side, "memory": {}, "blocks": blocks}
        for side, blocks in ((SUBJECT, ours), (BASELINE, kafkas), (SUBJECT, rest))
    ]
    return {
        "sessions": sessions,
        "axes": asdict(FULL),
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "subject": LOCKSTEP,
        "baseline": KAFKA,
    }
