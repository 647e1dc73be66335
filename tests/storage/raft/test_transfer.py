"""Handing over."""

import pytest

from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.messages import TimeoutNow, VoteRequest
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import NotLeader
from tests.storage.raft.cores import ME, beats, core, drained, holds, leader, said


def told(raft: Raft) -> list[TimeoutNow]:
    return [message for message in said(raft) if isinstance(message, TimeoutNow)]


def test_an_up_to_date_target_gets_timeout_now_at_once() -> None:
    raft = leader()
    assert raft.has_lease(raft.now_ms)
    raft.transfer(2, raft.now_ms)
    assert told(raft) == [TimeoutNow(ME, 2, 1)]
    assert (raft.has_lease(raft.now_ms), raft.is_transferring, raft.is_serving) == (False, True, True)
    with pytest.raises(NotLeader):
        raft.propose()
    raft.step(beats(raft, 3, 1), raft.now_ms)
    assert told(raft) == []
    raft.step(beats(raft, 2, 1), raft.now_ms)  # still there: told again
    assert told(raft) == [TimeoutNow(ME, 2, 1)]


def test_a_target_that_lags_is_brought_up_to_date_first() -> None:
    raft = leader()
    raft.propose()
    raft.transfer(2, raft.now_ms)
    assert told(raft) == []
    assert raft.has_lease(raft.now_ms)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert told(raft) == [TimeoutNow(ME, 2, 1)]


def until_it_expires(raft: Raft) -> None:
    for _ in range(10):
        assert raft.is_transferring
        raft.tick(raft.now_ms + 50)
        raft.step(beats(raft, 3, 1), raft.now_ms)


def test_an_untold_target_changes_nothing_in_the_end() -> None:
    raft = leader()
    raft.propose()
    raft.transfer(2, raft.now_ms)
    until_it_expires(raft)
    assert (
        raft.leader_state is not None and raft.leader_state.resumed_index == 2
    )  # what the shell applies first
    assert (raft.is_transferring, raft.role, raft.propose()) == (False, Role.LEADER, 3)
    assert raft.has_lease(raft.now_ms)


def test_a_leader_whose_target_does_not_campaign_continues() -> None:
    raft = leader()
    raft.transfer(2, raft.now_ms)
    until_it_expires(raft)
    assert (raft.role, raft.term, raft.is_transferring) == (Role.CANDIDATE, 2, False)
    assert said(raft) == [VoteRequest(ME, to, 2, False, 1, 1, transfer=True) for to in (2, 3)]


def test_refusals() -> None:
    with pytest.raises(NotLeader):
        core().transfer(2, 0)
    raft = leader(is_serving=False)
    with pytest.raises(ConfigurationRejected, match="has not committed"):
        raft.transfer(2, raft.now_ms)
    raft = leader()
    for target in (ME, 4):
        with pytest.raises(ConfigurationRejected, match="no other voter"):
            raft.transfer(target, raft.now_ms)
    raft.transfer(2, raft.now_ms)
    with pytest.raises(ConfigurationRejected, match="transferring"):
        raft.transfer(3, raft.now_ms)
    drained(raft)
