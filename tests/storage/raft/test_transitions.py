"""The table of role changes: what it allows, what it forbids, and that no role is a dead end."""

import itertools

import pytest

from lockstep.storage.raft.transitions import TRANSITIONS, IllegalTransition, Role, check


def test_whatever_the_table_does_not_name_is_refused_in_words() -> None:
    for old, new in itertools.product(Role, Role):
        if (old, new) in TRANSITIONS:
            check(old, new)
        else:
            with pytest.raises(IllegalTransition, match=f"^{old.value} may not become {new.value}$"):
                check(old, new)


def test_nobody_leads_without_having_stood() -> None:
    """The one way to lead is a candidate's; the ways to stand are a majority's word or a leader's."""
    assert [old for old, new in TRANSITIONS if new is Role.LEADER] == [Role.CANDIDATE]
    assert {old for old, new in TRANSITIONS if new is Role.CANDIDATE} == {Role.PRE_CANDIDATE, Role.FOLLOWER}


def test_every_role_can_step_down_and_a_leader_can_do_nothing_else() -> None:
    for role in Role:
        assert role is Role.FOLLOWER or (role, Role.FOLLOWER) in TRANSITIONS
    assert [new for old, new in TRANSITIONS if old is Role.LEADER] == [Role.FOLLOWER]


def test_each_transition_has_a_reason() -> None:
    assert all(TRANSITIONS.values())
