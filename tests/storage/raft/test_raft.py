"""The core's face: what it takes, what it hands out once, and what stale reports change (nothing)."""

import pytest

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import (
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Install,
    InstallResponse,
    Message,
    TimeoutNow,
)
from lockstep.storage.raft.progress import SendState
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import LONG_AGO_MS, NEVER_MS, RaftSettings
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.raft.transitions import TRANSITIONS, IllegalTransition, Role, check
from lockstep.storage.types import HardState, NotLeader
from tests.storage.raft.cores import ME, START_MS, core, drained, entries, heartbeat, leader

ALONE = Configuration((1,))


def alone(term: int = 4) -> Raft:
    raft = core(ALONE, terms=[4] * 10, term=term)
    raft.campaign(START_MS)
    return raft


def test_a_single_voter_leads_once_its_vote_is_on_disk() -> None:
    raft = alone()
    assert (raft.role, raft.term, raft.leader_id) == (Role.CANDIDATE, 5, -1)
    with pytest.raises(NotLeader):
        raft.propose()
    ready = raft.ready()
    assert (ready.hard_state, ready.no_op_index) == (HardState(5, 1), None)
    assert raft.ready().hard_state is None  # handed out once
    for stale in (HardState(4, 1), HardState(5, 2)):  # of another term, of another's vote
        raft.on_hard_state_persisted(stale)
        assert raft.leader_id == -1
    raft.on_hard_state_persisted(HardState(5, 1))
    assert (raft.role, raft.leader_id) == (Role.LEADER, 1)


def test_serves_once_the_no_op_of_its_term_is_committed() -> None:
    raft = alone()
    drained(raft)
    with pytest.raises(NotLeader):
        raft.propose()
    raft.on_persisted(10, 4, 0)  # what it held before says nothing about this term
    assert (raft.last_index, raft.commit_index, raft.is_serving) == (11, 0, False)
    raft.on_persisted(11, 5, 0)
    assert (raft.commit_index, raft.is_serving) == (11, True)
    assert raft.deadline_ms == NEVER_MS  # nobody to keep informed
    raft.tick(START_MS + 1_000_000)
    assert raft.is_serving


def test_entries_commit_when_persisted_and_never_uncommit() -> None:
    raft = leader(ALONE)
    assert [raft.propose(), raft.propose(7)] == [2, 3]
    assert raft.terms.size_between(2, 3) == 7
    raft.on_persisted(3, 1, 0)
    assert raft.commit_index == 3
    raft.propose()
    for stale in ((2, 1, 0), (4, 0, 0), (5, 1, 0), (4, 1, 9)):  # late, another entry, none, another log
        raft.on_persisted(*stale)
        assert (raft.commit_index, raft.persisted_index) == (3, 3)


def test_the_completion_of_a_write_before_a_truncation_is_ignored() -> None:
    raft = core(terms=[2], term=5)
    raft.step(entries((1, 2), [4]), START_MS)
    drained(raft)
    before = raft.truncation_count
    raft.step(entries((1, 2), [6], term=6, sender=3), START_MS)
    drained(raft)
    raft.step(entries((1, 2), [4, 7], term=7, sender=2), START_MS)
    drained(raft)
    raft.on_persisted(2, 4, before)  # that very entry, but not that write
    assert raft.persisted_index == 1
    raft.on_persisted(3, 7, raft.truncation_count)
    assert raft.persisted_index == 3


def test_messages_for_others_of_ourselves_or_of_no_kind_are_ignored() -> None:
    raft = core(term=5)
    for message in (Heartbeat(2, 7, 9, 0, 0), Heartbeat(ME, ME, 9, 0, 0), Message(2, ME, 9)):
        raft.step(message, START_MS)
    assert (raft.term, raft.leader_id) == (5, -1)


def test_time_does_not_go_back() -> None:
    raft = core()
    raft.tick(START_MS - 500)
    assert raft.now_ms == START_MS


def test_a_hard_state_behind_its_log_belonged_to_another_member() -> None:
    terms = TermIndex(5, 3)
    raft = Raft(7, ConfigurationStack(ALONE), HardState(1, 2), terms, 5, RaftSettings(), 0, lambda n: 0)
    assert (raft.term, raft.voted_for) == (3, -1)
    assert core(terms=[4], voted_for=2).voted_for == 2


def test_a_checkpoint_forgets_what_is_committed() -> None:
    raft = leader(ALONE)
    raft.propose()
    raft.on_checkpoint(2)
    assert raft.terms.base_index == 1


def test_reports_about_peers_mean_nothing_without_leadership() -> None:
    raft = core()
    raft.report_unreachable(2)
    assert raft.progress(2) is None
    assert not raft.is_transferring
    assert leader().progress(9) is None


def test_messages_wait_for_the_hard_state() -> None:
    raft = core(terms=[4])
    raft.step(TimeoutNow(2, ME, 4), START_MS)
    ready = raft.ready()
    assert (ready.hard_state, ready.messages) == (HardState(5, 1), ())
    assert raft.ready().messages == ()
    raft.on_hard_state_persisted(HardState(5, 1))
    assert len(raft.ready().messages) == 2


def test_role_changes_are_those_of_the_table() -> None:
    for old in Role:
        for new in Role:
            if (old, new) in TRANSITIONS:
                check(old, new)
            else:
                with pytest.raises(IllegalTransition):
                    check(old, new)
    with pytest.raises(IllegalTransition):
        leader().become(Role.CANDIDATE)


def test_a_leader_does_not_campaign() -> None:
    raft = leader()
    raft.campaign(raft.now_ms + 10_000)
    assert raft.role is Role.LEADER


def test_only_a_leader_changes_members_or_transfers() -> None:
    raft = core(term=5)
    with pytest.raises(NotLeader, match="member 1 does not lead in term 5"):
        raft.change_members([1, 2])
    with pytest.raises(NotLeader, match="member 1 does not lead in term 5"):
        raft.transfer(2, START_MS)
    raft = leader()
    raft.transfer(2, raft.now_ms)
    assert raft.is_transferring
    with pytest.raises(NotLeader, match="takes no proposals"):
        raft.propose()


def test_other_members_are_handed_out_once_to_be_written() -> None:
    raft = leader()
    raft.change_members([1, 2, 4])
    index, configuration = drained(raft).configuration or (0, ALONE)
    assert (index, configuration.members) == (2, (1, 2, 3, 4))
    assert raft.configuration == configuration and drained(raft).configuration is None


def test_a_lost_connection_takes_what_was_on_the_way_with_it() -> None:
    raft = leader()
    raft.propose()
    assert [message.to for message in drained(raft).messages] == [2, 3]
    raft.report_unreachable(2)
    progress = raft.progress(2)
    assert progress is not None and progress.state is SendState.PROBE


def test_a_follower_answers_for_its_disk_and_not_for_others() -> None:
    raft = core(terms=[4], term=5)
    raft.step(entries((1, 4), [5]), START_MS)
    ready = drained(raft)
    assert (ready.accepted, ready.truncate_after) == ((2, 2), None)
    raft.on_persisted(2, 5, raft.truncation_count)
    assert [type(message) for message in raft.ready().messages] == [AppendResponse]
    assert raft.deadline_ms == raft.election_due_ms != NEVER_MS
    assert not raft.has_lease(START_MS) and leader().has_lease(1500)
    assert (raft.contact_ms(START_MS), leader().contact_ms(1600)) == (LONG_AGO_MS, 1500)


def test_a_shipped_checkpoint_from_its_first_chunk_to_the_switch() -> None:
    raft = core(term=5)
    chunk = Install(2, ME, 5, 9, 5, 0, True, 77)
    raft.step(chunk, START_MS)
    assert (raft.ready().chunks, raft.ready().chunks) == ([chunk], ())
    raft.chunk_stored(chunk)
    assert raft.needs_install(9, 5)
    raft.on_installed(9, 5, ALONE, START_MS)
    assert (raft.last_index, raft.commit_index, raft.configuration) == (9, 9, ALONE)
    assert not raft.needs_install(9, 5)


def test_the_snapshot_sender_gets_targets_and_their_responses() -> None:
    raft = leader()
    progress = raft.progress(2)
    assert progress is not None
    progress.begin_install(raft.now_ms)
    said = InstallResponse(2, ME, 1, 9, 0, True, raft.now_ms)
    raft.step(said, raft.now_ms)
    assert (raft.ready().chunk_acks, raft.ready().chunk_acks) == ([said], ())
    refusal = InstallResponse(2, ME, 1, 9, 0, False, raft.now_ms)
    raft.step(refusal, raft.now_ms)
    assert raft.ready().chunk_acks == [refusal]
    for _ in range(100):
        raft.tick(raft.now_ms + 50)
        raft.step(HeartbeatResponse(3, ME, 1, 1, raft.now_ms), raft.now_ms)
    assert (raft.ready().installs, raft.ready().installs) == ([2], ())


def test_alone_is_a_leader_of_nobody_that_wants_nothing() -> None:
    raft = core(ALONE)
    raft.campaign(START_MS)
    wanted = raft.ready().hard_state
    assert wanted is not None and not raft.alone
    raft.on_hard_state_persisted(wanted)
    assert not raft.alone  # its no-op is still to be handed out
    assert raft.ready().no_op_index == 1
    assert raft.alone
    assert not leader().alone


def test_a_leader_commits_alone_while_nobody_and_nothing_else_is_waited_for() -> None:
    raft = core(ALONE)
    assert not raft.commits_alone  # a follower
    raft.campaign(START_MS)
    wanted = raft.ready().hard_state
    assert wanted is not None
    raft.on_hard_state_persisted(wanted)
    assert raft.ready().no_op_index == 1
    assert not raft.commits_alone  # its no-op is not committed
    raft.on_persisted(1, 1, 0)
    assert raft.commits_alone
    index = raft.propose(10)
    assert not raft.commits_alone  # an entry waits for its flush
    raft.on_persisted(index, 1, 0)
    assert raft.commits_alone
    raft.change_members([ME], [2])
    assert not raft.commits_alone  # a learner is to come
    assert raft.ready().configuration is not None
    raft.on_persisted(raft.last_index, 1, 0)
    assert raft.commit_index == raft.last_index and not raft.commits_alone  # it is sent what is committed
    assert not leader().commits_alone


def test_a_leader_is_timed_by_those_it_leads() -> None:
    assert leader(ALONE).deadline_ms == NEVER_MS
    raft = leader()
    raft.tick(raft.deadline_ms)
    assert [type(message) for message in drained(raft).messages] == [Heartbeat, Heartbeat]


def test_an_idle_core_has_nothing_to_hand_out() -> None:
    raft = core(terms=[5])
    assert raft.idle
    raft.step(heartbeat(), START_MS)
    assert not raft.idle
    drained(raft)
    assert raft.idle
    led = leader()
    drained(led)
    assert not led.idle  # a follower may be due something


def test_proposals_are_accepted_once_serving_and_not_while_handing_over() -> None:
    assert not core().accepts_proposals and not leader(is_serving=False).accepts_proposals
    raft = leader()
    assert raft.accepts_proposals
    raft.transfer(2, raft.now_ms)
    assert raft.is_serving and not raft.accepts_proposals


def test_a_leader_that_resigns_follows_in_its_term() -> None:
    raft = leader()
    term = raft.term
    raft.resign()
    assert (raft.role, raft.term, raft.leader_id, raft.is_serving) == (Role.FOLLOWER, term, -1, False)
    raft.resign()  # and again, leading nobody
    assert raft.role is Role.FOLLOWER


def test_a_stopped_leader_and_a_new_group_start_an_election_at_once() -> None:
    raft = core(term=5)
    raft.step(heartbeat(), START_MS)
    raft.on_leader_stopped(2, START_MS + 30)
    assert (raft.now_ms, raft.leader_id) == (START_MS + 30, -1)
    new = core(term=0)
    new.campaign_after(0, START_MS + 40)
    assert (new.now_ms, new.deadline_ms) == (START_MS + 40, START_MS + 40)


def test_a_group_that_has_had_an_election_is_not_new() -> None:
    raft = core(term=1)
    waited = raft.deadline_ms
    raft.campaign_after(0, START_MS)
    assert raft.deadline_ms == waited


def test_only_a_leader_needs_entries_for_others() -> None:
    assert core(ALONE).lowest_active_match(0) is None
    assert leader().lowest_active_match(0) == 1
