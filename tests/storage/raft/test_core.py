"""The core of one voter: what may happen, in which order, and what a stale report changes (nothing)."""

import pytest

from storage.raft.core import Raft, UnsupportedMembership
from storage.raft.term_index import TermIndex
from storage.raft.transitions import TRANSITIONS, IllegalTransition, Role, check
from storage.types import HardState, NotLeader


def candidate(term: int = 4, last_index: int = 10, last_term: int = 4) -> Raft:
    terms = TermIndex(last_index, last_term)
    raft = Raft(1, [1], HardState(term, 1), terms, commit_index=0)
    raft.campaign()
    return raft


def leader() -> Raft:
    raft = candidate()
    hard_state = raft.ready().hard_state
    assert hard_state is not None
    raft.hard_state_persisted(hard_state)
    return raft


def test_leads_only_after_the_vote_is_on_disk() -> None:
    raft = candidate()
    assert (raft.role, raft.term, raft.leader_id) == (Role.CANDIDATE, 5, -1)
    with pytest.raises(NotLeader):
        raft.propose()
    ready = raft.ready()
    assert ready.hard_state == HardState(5, 1)
    assert ready.no_op_index is None
    assert raft.ready().hard_state is None  # handed out once
    for stale in (HardState(4, 1), HardState(5, 2)):  # of another term, of another's vote
        raft.hard_state_persisted(stale)
        assert raft.leader_id == -1
    raft.hard_state_persisted(HardState(5, 1))
    assert (raft.role, raft.leader_id) == (Role.LEADER, 1)
    raft.hard_state_persisted(HardState(5, 1))  # twice is nothing new
    assert raft.role is Role.LEADER


def test_serves_once_the_no_op_of_its_term_is_committed() -> None:
    raft = leader()
    assert raft.ready().no_op_index == 11
    assert raft.ready().no_op_index is None
    assert not raft.serving
    raft.persisted(10, 4)  # what it held before says nothing about this term
    assert (raft.commit_index, raft.serving) == (0, False)
    raft.persisted(11, 5)
    assert (raft.commit_index, raft.serving) == (11, True)
    assert raft.ready().commit_index == 11


def test_entries_commit_when_persisted_and_never_uncommit() -> None:
    raft = leader()
    raft.ready()
    assert [raft.propose(), raft.propose()] == [12, 13]
    raft.persisted(13, 5)
    assert raft.commit_index == 13
    raft.persisted(12, 5)  # late
    assert raft.commit_index == 13
    raft.persisted(13, 4)  # another entry was there
    raft.persisted(14, 5)  # no such entry
    assert (raft.commit_index, raft.last_index) == (13, 13)


def test_reports_mean_nothing_to_a_follower() -> None:
    raft = Raft(1, [1], HardState(), TermIndex(), 0)
    raft.persisted(0, 0)
    assert (raft.commit_index, raft.role) == (0, Role.FOLLOWER)


def test_a_checkpoint_forgets_terms_but_only_committed_ones() -> None:
    raft = leader()
    raft.ready()
    raft.persisted(11, 5)
    raft.propose()
    raft.checkpointed(12)
    assert raft.terms.base_index == 11


@pytest.mark.parametrize("voters", [[], [2], [1, 2], [1, 2, 3]])
def test_more_than_one_voter_is_refused(voters: list[int]) -> None:
    with pytest.raises(UnsupportedMembership, match="one voter"):
        Raft(1, voters, HardState(), TermIndex(), 0)


def test_role_changes_are_those_of_the_table() -> None:
    for old in Role:
        for new in Role:
            if (old, new) in TRANSITIONS:
                check(old, new)
            else:
                with pytest.raises(IllegalTransition):
                    check(old, new)
    with pytest.raises(IllegalTransition):
        leader().campaign()
