"""What a lock costs, for a moment and for real: the figures are there, and a bound that is missed says so."""

from __future__ import annotations

import json

import pytest

from bench.exit_status import EXIT_GOAL_MISSED
from bench.locks.command import main

MOMENT = ["--seconds", "0.2", "--rounds", "1"]


def test_both_kinds_of_topics_are_written_to_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MOMENT, "--most", "1000"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plain"]["writes"] > 0 and found["locked"]["writes"] > 0
    assert main([*MOMENT, "--most", "0.001"]) == EXIT_GOAL_MISSED


def test_a_bound_that_nothing_could_miss_is_refused() -> None:
    with pytest.raises(SystemExit):
        main([*MOMENT, "--most", "nan"])
