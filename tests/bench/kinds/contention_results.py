"""What clients and sessions of contention have measured, for tests."""

from __future__ import annotations

from typing import Any

from bench.settings import FLUSH


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
