"""Runs that are not begun, and what sessions have measured, for tests of kinds."""

from __future__ import annotations

from typing import Any

from bench.figures.intervals import with_intervals
from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.kinds.headline import GOALS, RATIOS
from bench.runner import Measurement, parser_of
from bench.settings import FLUSH, OS
from tests.bench.outcomes import FACTS


def client_result(successes: int, refusals: int = 0, longest_wait_s: float = 0.1) -> dict[str, Any]:
    latencies = [5_000_000] * successes
    return {
        "total": successes + 1,
        "successes": successes,
        "refusals": refusals,
        "longest_wait_s": longest_wait_s,
        "latencies_ns": latencies,
    }


def sessions_of(*rounds: dict[str, Any]) -> list[dict[str, Any]]:
    shared = {"name": "hot3", "policy": FLUSH, "proven": True}
    return [
        {"side": "subject", "memory": {}, "blocks": [{**shared, "figures": figures}]} for figures in rounds
    ]


def made(kind: type[Measurement[Any, Any]], *words: str) -> Any:
    parser = parser_of(kind.command_word(), kind.__doc__, kind.options)
    run = kind(parser.parse_args(words))
    run.check(parser)
    return run


def headline_result(rates: list[float], baseline: float) -> dict[str, Any]:
    def session(side: str, number: int, rate: float) -> dict[str, Any]:
        blocks = [
            {
                "name": "latency64",
                "policy": policy,
                "figures": {"requests_per_s": rate},
                "proven": True,
                "writes": 1000,
                "device": {"flushes": 16, "flush_ms": 1, "write_bytes": 64_000},
                "broker_cpu_s": 0.05,
                "client_cpu_share": 0.97,
                "foreign_cpu_share": 0.75 if number else 0.01,
                "stolen_cpu_share": 0.02,
            }
            for policy in (FLUSH, OS)
        ]
        warmup = {"settled": side == SUBJECT or number > 0, "compiler_share_at_end": 0.31}
        outcome = {"side": side, "round": number, "memory": {}, "blocks": blocks, "warmup": warmup}
        return outcome | {"again": ["n3_latency1: not the leader\nits log"] if number else []}

    sessions = [session(BASELINE, number, baseline) for number in range(len(rates))]
    sessions += [session(SUBJECT, number, rate) for number, rate in enumerate(rates)]
    goals = {goal.ratio: goal for goal in GOALS}
    rows = compare(sessions, [], GOALS, RATIOS)
    return {
        "kind": "headline",
        "command": "python -m bench headline",
        "subject": "lockstep",
        "baseline": "kafka",
        "heap": "512M",
        "sizes": {"1": {"rounds": len(rates), "produce_records": {"flush": 900, "os": 900}}},
        **FACTS,
        "failures": ["session 2: broke\nthe rest"],
        "comparison": with_intervals(rows, sessions, RATIOS, goals),
        "sessions": sessions,
    }
