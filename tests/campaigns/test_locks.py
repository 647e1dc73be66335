"""The campaign of conditional appends: a short cut of it, and that it sees every planted fault."""

from __future__ import annotations

import json

import pytest

from tests.campaigns import locks
from tests.support.cases import each_case


def test_a_short_cut() -> None:
    counts, problem = locks.run(20_261_122, 500)
    assert not problem
    assert counts["sequences"] == 500 and min(counts["taken"], counts["refused"]) > 1000
    assert 0 < counts["refused wrongly"] < counts["refused"] / 10, "small tables estimate, and say so"


@each_case("plant", locks.PLANTS)
def test_planted_faults_are_seen(plant: str) -> None:
    _, problem = locks.run(1, 1000, plant)
    assert problem


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert locks.main(["--sequences", "20", "--seed", "5", "--no-evidence"]) == 0
    seed, figures = capsys.readouterr().out.splitlines()
    assert seed == "locks: seed 5, 20 sequences" and json.loads(figures)["sequences"] == 20
    plant = next(iter(locks.PLANTS))
    assert locks.main(["--sequences", "1000", "--seed", "1", "--plant", plant]) == 1
