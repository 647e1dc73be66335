"""A small run of the campaign, and what it says of a response that lacks something."""

from __future__ import annotations

from tests.campaigns import many_partitions


def test_a_few_topics_get_every_step() -> None:
    figures = many_partitions.run(4, 5, limit_ms=60_000)
    assert figures["problems"] == []
    assert {"create", "metadata of all, first", "restart after kill -9", "delete"} <= figures["steps"].keys()


def test_a_step_that_holds_others_up_is_a_problem() -> None:
    figures = many_partitions.run(1, 1, limit_ms=0)
    assert any("create: others waited for" in each for each in figures["problems"])
