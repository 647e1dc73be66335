"""The feed measured: what is compared with what."""

from __future__ import annotations

from bench.feed.command import evaluate
from bench.feed.figures import table
from tests.bench.feed.results import feed_sessions


def test_what_a_body_costs_is_above_the_empty_one() -> None:
    sessions = feed_sessions((0, 20.0, 1.0), (1_000, 22.0, 2.0), (10_000, 40.0, 6.0))
    rows, problems = evaluate([*sessions, *feed_sessions((1_000, 24.0, 4.0))])
    assert problems == []
    assert [(row["body_bytes"], row["above_us"]) for row in rows] == [(0, 0.0), (1_000, 5.0), (10_000, 25.0)]
    lines = table({"rows": rows}).splitlines()
    assert lines[-1].split()[-2:] == ["25.0", "30.0"]


def test_without_empty_bodies_nothing_is_said() -> None:
    rows, problems = evaluate(feed_sessions((1_000, 22.0, 2.0)))
    assert rows == [] and len(problems) == 1
