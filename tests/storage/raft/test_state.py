"""The state of one member as it is made, and the leader's view of a configuration."""

from __future__ import annotations

import pytest

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.settings import LONG_AGO_MS, RaftSettings
from lockstep.storage.raft.state import NOBODY, LeaderState, RaftState
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.raft.transitions import IllegalTransition, Role
from lockstep.storage.types import HardState

ME = 1
THREE = Configuration((1, 2, 3))


def state(configuration: Configuration = THREE, hard_state: HardState | None = None) -> RaftState:
    terms = TermIndex(4, 2)
    terms.append(5, 3, 10)
    stack = ConfigurationStack(configuration, 4)
    return RaftState(
        ME, stack, hard_state or HardState(3, 2), terms, 4, RaftSettings(), 1000, lambda n: n - 1
    )


def test_a_restarted_member_respects_a_lease_that_it_may_have_granted() -> None:
    assert state().leader_contact_ms == 1000
    assert state(Configuration((ME,))).leader_contact_ms == LONG_AGO_MS
    assert (state().term, state().voted_for, state().last_index, state().persisted_index) == (3, 2, 5, 5)
    assert state().configuration == THREE


def test_a_hard_state_that_was_lost_voted_for_nobody() -> None:
    older = state(hard_state=HardState(2, 2))
    assert (older.term, older.voted_for) == (3, NOBODY), "the log's last term is newer"


def test_a_leader_serves_and_accepts_proposals() -> None:
    member = state()
    assert not (member.is_serving or member.is_transferring or member.accepts_proposals)
    member.leader_state = LeaderState(1100)
    assert not (member.is_serving or member.is_transferring or member.accepts_proposals)
    member.leader_state.is_serving = True
    assert member.is_serving and member.accepts_proposals
    member.leader_state.transfer_target = 2
    assert member.is_transferring and not member.accepts_proposals


def test_a_role_changes_as_the_table_allows() -> None:
    member = state()
    member.become(Role.PRE_CANDIDATE)
    assert member.role is Role.PRE_CANDIDATE
    with pytest.raises(IllegalTransition):
        member.become(Role.LEADER)
    assert member.extend(7) == 6 and member.terms.term_at(6) == 3


def test_a_leader_adopts_a_configuration() -> None:
    leading = LeaderState(1100)
    leading.adopt(THREE, ME, 6)
    kept = leading.progress[2]
    assert list(leading.progress) == [2, 3] and not leading.is_only_voter
    leading.contact_ms, leading.silent_heartbeats, leading.change_pending = 900, 3, False
    leading.adopt(Configuration((1, 2), learners=(4,)), ME, 8)
    assert list(leading.progress) == [2, 4] and leading.progress[2] is kept
    assert (leading.contact_ms, leading.silent_heartbeats, leading.change_pending) == (LONG_AGO_MS, 0, True)
    leading.adopt(Configuration((ME,)), ME, 8)
    assert leading.is_only_voter and leading.progress == {}
    leading.adopt(Configuration((ME, 2), old_voters=(ME, 3)), ME, 8)
    assert len(leading.voter_sets) == 2
