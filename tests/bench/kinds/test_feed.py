"""The feed measured: what is compared with what."""

from __future__ import annotations

from typing import Any

from bench.kinds.feed import Feed, table
from bench.settings import FLUSH
from tests.bench.kinds.results import made


def feed_sessions(*blocks: tuple[int, float, float]) -> list[dict[str, Any]]:
    """What one session has measured. Args: blocks: bytes, the client's and the broker's microseconds."""
    found = []
    for body_bytes, client_us, broker_us in blocks:
        figures = {"client_us": client_us, "broker_us": broker_us, "transactions_per_s": 1e6 / client_us}
        figures |= {"batch_bytes": 200 + body_bytes, "project_us": 30.0}
        block = {"name": f"feed{body_bytes}", "policy": FLUSH, "proven": True, "figures": figures}
        found.append(block)
    return [{"side": "subject", "memory": {}, "blocks": found}]


def test_what_a_body_costs_is_above_the_empty_one() -> None:
    sessions = feed_sessions((0, 20.0, 1.0), (1_000, 22.0, 2.0), (10_000, 40.0, 6.0))
    result = made(Feed).figures([*sessions, *feed_sessions((1_000, 24.0, 4.0))])
    assert "failures" not in result
    above = [(row["body_bytes"], row["above_us"]) for row in result["rows"]]
    assert above == [(0, 0.0), (1_000, 5.0), (10_000, 25.0)]
    assert table(result).splitlines()[-1].split()[-2:] == ["25.0", "30.0"]


def test_without_empty_bodies_there_is_no_section() -> None:
    result = made(Feed).figures(feed_sessions((1_000, 22.0, 2.0)))
    assert result["rows"] == [] and len(result["failures"]) == 1
