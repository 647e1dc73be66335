"""Who may stand, when a leader counts as heard, what a new term and stepping down leave behind."""

from lockstep.storage.raft import role_changes
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.settings import NEVER_MS
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState
from tests.storage.raft.cores import START_MS, core, entries, heartbeat, leader, role


def test_after_a_start_a_leader_counts_as_in_contact() -> None:
    raft = core()
    assert role_changes.has_live_leader(raft)
    raft.campaign(START_MS + 499)
    assert role(raft) is Role.FOLLOWER
    raft.campaign(START_MS + 500)
    assert raft.role is Role.PRE_CANDIDATE
    assert not role_changes.has_live_leader(core(Configuration((1,))))  # it can only have heard itself


def test_contact_with_a_leader_restarts_the_timeout() -> None:
    raft = core(term=5)
    raft.step(heartbeat(), START_MS + 400)
    assert raft.deadline_ms == START_MS + 900
    raft.step(heartbeat(term=4), START_MS + 450)
    assert raft.deadline_ms == START_MS + 900
    assert role_changes.has_live_leader(leader())


def test_members_that_do_not_vote_wait_for_nothing() -> None:
    assert core(Configuration(())).deadline_ms == NEVER_MS
    learner = core(Configuration((2,), (), (1,)))
    assert learner.deadline_ms == NEVER_MS
    learner.tick(START_MS + 100_000)
    assert learner.role is Role.FOLLOWER


def test_whom_the_newest_configuration_removes_may_stand_until_that_is_committed() -> None:
    raft = core(Configuration((2,), (1, 2)), terms=[4])
    without = Configuration((2,))
    raft.step(entries((1, 4), [5], configurations=[(2, without)]), START_MS)
    assert (raft.configuration, role_changes.may_campaign(raft)) == (without, True)
    raft.on_persisted(2, 5, raft.truncation_count)
    raft.step(heartbeat(commit_index=2), START_MS)
    assert raft.commit_index == 2
    assert not role_changes.may_campaign(raft)


def test_a_new_term_begins_afresh() -> None:
    raft = core(terms=[4])
    raft.step(entries((1, 4), [5], term=5), START_MS)
    assert (raft.leader_id, raft.follower_state.verified_index) == (2, 2)
    assert raft.ready().hard_state == HardState(5)
    role_changes.become_follower(raft, 7)
    assert (raft.term, raft.voted_for, raft.leader_id) == (7, -1, -1)
    assert raft.follower_state.verified_index == 0
    assert raft.ready().messages == ()


def test_stepping_down_ends_leadership_and_begins_a_wait() -> None:
    raft = leader()
    role_changes.become_follower(raft, raft.term)
    assert (raft.role, raft.leader_state, raft.leader_id, raft.is_serving) == (Role.FOLLOWER, None, -1, False)
    assert raft.deadline_ms == raft.now_ms + 500
    role_changes.become_follower(raft, raft.term)  # nothing to stop
    assert raft.role is Role.FOLLOWER


def test_a_leader_whose_process_has_ended_is_not_waited_for() -> None:
    raft = core(term=5)
    raft.step(heartbeat(), START_MS + 400)
    raft.on_leader_stopped(3, START_MS + 410)
    assert (raft.leader_id, raft.deadline_ms) == (2, START_MS + 900), "node 3 leads nothing"
    raft.on_leader_stopped(2, START_MS + 410)
    assert raft.leader_id == -1 and not role_changes.has_live_leader(raft)
    assert raft.deadline_ms == START_MS + 460, "node 3 comes first, a heartbeat earlier"
    raft.tick(START_MS + 460)
    assert raft.role is Role.PRE_CANDIDATE


def test_heirs_stand_in_turn() -> None:
    five = Configuration((1, 2, 3, 4, 5))
    waits = {}
    for gone in (2, 3, 5):
        raft = core(five, term=5)
        raft.step(heartbeat(sender=gone), START_MS)
        raft.on_leader_stopped(gone, START_MS)
        waits[gone] = raft.deadline_ms - START_MS
    assert waits == {2: 150, 3: 100, 5: 0}


def test_a_wait_that_is_shorter_stays() -> None:
    raft = core(term=5)
    raft.step(heartbeat(), START_MS)
    raft.on_leader_stopped(2, START_MS + 480)
    assert raft.deadline_ms == START_MS + 500


def test_a_leader_and_a_learner_have_nobody_to_wait_for() -> None:
    first = leader()
    first.on_leader_stopped(1, START_MS)
    assert first.leader_state is not None
    learner = core(Configuration((2, 3), (), (1,)), term=5)
    learner.step(heartbeat(), START_MS)
    learner.on_leader_stopped(2, START_MS)
    assert (learner.leader_id, learner.deadline_ms) == (-1, NEVER_MS)


def test_founders_stand_in_turn_and_at_once() -> None:
    waits = []
    for rank in (0, 1, 2):
        raft = core(term=0)
        raft.campaign_after(rank, START_MS)
        assert not role_changes.has_live_leader(raft)
        waits.append(raft.deadline_ms - START_MS)
    assert waits == [0, 50, 100]
    later = core(term=5)
    later.campaign_after(0, START_MS)
    assert role_changes.has_live_leader(later), "a term has begun: somebody may have promised something"
