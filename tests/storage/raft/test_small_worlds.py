"""Raft's promises hold in small worlds full of faults, and the worlds would notice if they did not."""

import pytest

from tests.storage.raft.chaos import Chaos
from tests.storage.raft.planted_faults import FAULTS
from tests.storage.raft.world import LawBroken
from tests.support.cases import each_case

WORLDS = 140
STEPS = 2000


@each_case("share", range(4))
def test_promises_hold(share: int) -> None:
    for seed in range(share, WORLDS, 4):
        try:
            Chaos(seed).run(STEPS)
        except BaseException as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


@pytest.mark.parametrize(
    "fault",
    [
        "a_shorter_log_may_win",
        "entries_are_acknowledged_before_they_are_flushed",
        "pre_votes_count_as_votes",
        "the_leader_counts_what_it_has_not_flushed",
        "two_votes_in_a_term",
    ],
)
def test_a_fault_breaks_a_promise(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    FAULTS[fault](monkeypatch)
    for seed in range(40):
        try:
            Chaos(seed).run(STEPS)
        except LawBroken:
            return
    pytest.fail(f"{fault}: nobody noticed")
