"""The table of queue states: what it allows, what it forbids, and that it is the seed's figure 2."""

import itertools

import pytest

from lockstep.player.core.transitions import TRANSITIONS, IllegalQueueTransition, QueueState, check

N, RF, FC, S = (
    QueueState.NORMAL,
    QueueState.RECOVERY_FETCHING,
    QueueState.FETCHING_COMPLETED,
    QueueState.SUSPENDED,
)


def test_whatever_the_table_does_not_name_is_refused_in_words() -> None:
    for old, new in itertools.product(QueueState, QueueState):
        if (old, new) in TRANSITIONS:
            check(old, new)
        else:
            with pytest.raises(IllegalQueueTransition, match=f"^{old.value} may not become {new.value}$"):
                check(old, new)


def test_the_only_way_back_is_a_recovery() -> None:
    assert [new for old, new in TRANSITIONS if old is S] == [RF]


def test_every_state_can_be_suspended_and_nothing_goes_from_normal_to_recovery() -> None:
    assert {old for old, new in TRANSITIONS if new is S} == {N, RF, FC}
    assert [new for old, new in TRANSITIONS if old is N] == [S]


def test_each_transition_has_a_reason() -> None:
    assert all(TRANSITIONS.values())
