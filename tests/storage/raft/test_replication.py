"""What answers mean to a leader, what it commits, what it does with each heartbeat."""

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallResponse,
)
from lockstep.storage.raft.progress import Progress, SendState
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.transitions import Role
from tests.storage.raft.cores import ME, beats, core, drained, heartbeat, holds, lacks, leader, role, said

FIVE = Configuration((1, 2, 3, 4, 5))


def progress_of(raft: Raft, member: int = 2) -> Progress:
    progress = raft.progress(member)
    assert progress is not None
    return progress


def test_a_majority_commits_and_our_disk_is_one_of_it() -> None:
    raft = leader(FIVE)
    raft.propose()
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert raft.commit_index == 1
    raft.on_persisted(2, raft.term, 0)
    assert raft.commit_index == 1
    raft.step(holds(raft, 3, 2), raft.now_ms)
    assert raft.commit_index == 2


def test_others_commit_what_our_disk_lags_behind_with() -> None:
    raft = leader()
    raft.propose()
    for member in (2, 3):
        raft.step(holds(raft, member, 2), raft.now_ms)
    assert (raft.commit_index, raft.persisted_index) == (2, 1)


def test_a_commit_counts_for_a_race() -> None:
    raft = leader(settings=RaftSettings(deferral_ms=20, probe_commits=2))
    left = []
    for index in (2, 3, 4):
        raft.propose()
        drained(raft)
        raft.on_persisted(index, raft.term, 0)
        for member in (2, 3):
            raft.step(holds(raft, member, index), raft.now_ms)
        assert raft.leader_state is not None
        left.append(raft.leader_state.deferred_voters.probe_commits_left)
    assert left == [1, 0, 0]


def test_an_older_term_is_not_committed_by_counting() -> None:
    raft = leader(terms=[1, 3], is_serving=False)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    raft.step(holds(raft, 3, 2), raft.now_ms)
    assert (raft.commit_index, raft.is_serving) == (0, False)
    raft.on_persisted(3, raft.term, 0)
    raft.step(holds(raft, 3, 3), raft.now_ms)
    assert (raft.commit_index, raft.is_serving) == (3, True)


def test_nothing_commits_before_there_is_a_no_op() -> None:
    raft = core(Configuration((1,)), terms=[1])
    raft.campaign(raft.now_ms)
    ready = raft.ready()
    assert ready.hard_state is not None
    raft.on_hard_state_persisted(ready.hard_state)
    raft.persisted_index = 0
    raft.on_persisted(1, 1, 0)
    assert (raft.role, raft.commit_index) == (Role.LEADER, 0)


def test_a_match_never_falls_and_cannot_exceed_the_log() -> None:
    raft = leader()
    raft.propose()
    raft.propose()
    drained(raft)
    for match, known in ((2, 2), (1, 2), (99, 2), (3, 3)):
        raft.step(holds(raft, 2, match), raft.now_ms)
        assert progress_of(raft).match_index == known
    raft.step(beats(raft, 2, -7), raft.now_ms)
    assert progress_of(raft).match_index == 3


def test_answers_of_strangers_and_to_followers_change_nothing() -> None:
    raft = leader(is_serving=False)
    raft.step(holds(raft, 9, 1), raft.now_ms)
    raft.step(HeartbeatResponse(9, ME, raft.term, 1, raft.now_ms), raft.now_ms)
    raft.step(InstallResponse(9, ME, raft.term, 1, 0, True, raft.now_ms), raft.now_ms)
    assert (raft.commit_index, raft.progress(9)) == (0, None)
    follower = core(term=5)
    follower.step(AppendResponse(2, ME, 5, 1, 0, 0, 0, 77), follower.now_ms)
    assert (follower.commit_index, follower.progress(2)) == (0, None)


def test_rejections_lead_to_the_match() -> None:
    raft = leader(terms=[1, 1, 3, 3])
    raft.change_members([1, 2, 3], [4])
    drained(raft)
    raft.step(lacks(raft, 4, 5, (3, 1)), raft.now_ms)
    assert said(raft, 4) == [Append(ME, 4, 4, 2, 1, (), 2, (), 5, raft.now_ms)]
    raft.step(lacks(raft, 4, 2, (0, 0)), raft.now_ms)
    assert progress_of(raft, 4).next_index == 1


def test_an_answer_to_a_heartbeat_makes_up_for_a_lost_one() -> None:
    raft = leader()
    raft.propose()
    drained(raft)
    raft.step(beats(raft, 2, 2), raft.now_ms)
    assert (progress_of(raft).match_index, list(progress_of(raft).in_flight)) == (2, [])


def test_a_member_that_lost_its_verified_index_is_probed() -> None:
    raft = leader()
    raft.step(beats(raft, 2, 0), raft.now_ms)
    assert said(raft, 2) == [Append(ME, 2, 1, 1, 1, (), 1, (), 1, raft.now_ms)]
    raft.step(beats(raft, 2, 0), raft.now_ms)  # one is under way
    assert said(raft, 2) == []
    raft.step(holds(raft, 2, 1), raft.now_ms)
    raft.propose()
    drained(raft)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    raft.propose()
    raft.on_persisted(3, 1, 0)
    for member in (2, 3):
        raft.step(holds(raft, member, 3), raft.now_ms)
    drained(raft)
    progress_of(raft).match_index = 2
    raft.on_checkpoint(3)
    raft.step(beats(raft, 2, 1), raft.now_ms)  # its match is under the checkpoint
    assert [type(message) for message in said(raft, 2)] == []


def test_a_member_that_gets_a_snapshot_is_not_probed() -> None:
    raft = leader()
    progress_of(raft).begin_install(raft.now_ms)
    raft.step(beats(raft, 2, 0), raft.now_ms)
    assert said(raft, 2) == []


def test_heartbeats_and_timeouts() -> None:
    raft = leader()
    raft.propose()
    drained(raft)
    raft.step(beats(raft, 3, 1), raft.now_ms)
    assert raft.deadline_ms == raft.now_ms + 50
    raft.tick(raft.now_ms + 49)
    assert said(raft) == []
    raft.tick(raft.now_ms + 1)
    assert said(raft) == [Heartbeat(ME, to, 1, 1, raft.now_ms) for to in (2, 3)]
    assert raft.deadline_ms == raft.now_ms + 50
    raft.tick(raft.now_ms + 150)
    assert progress_of(raft).state is SendState.PROBE
    assert [type(message) for message in said(raft, 2)] == [Heartbeat, Append]


def test_check_quorum() -> None:
    raft = leader(settings=RaftSettings(heartbeat_ms=100))
    for _ in range(5):  # the first finds the answers to the no-op
        raft.tick(raft.now_ms + 100)
    assert role(raft) is Role.LEADER
    raft.tick(raft.now_ms + 100)
    assert role(raft) is Role.FOLLOWER
    raft = leader(settings=RaftSettings(heartbeat_ms=100))
    for _ in range(9):
        raft.tick(raft.now_ms + 100)
        raft.step(beats(raft, 3, 1), raft.now_ms)
    assert role(raft) is Role.LEADER  # one other is enough


def test_a_delayed_leader_sends_heartbeats_before_it_steps_down() -> None:
    raft = leader()
    raft.tick(raft.now_ms + 5000)
    assert (raft.role, len(said(raft))) == (Role.LEADER, 2)
    for _ in range(9):
        raft.tick(raft.now_ms + 50)
    assert role(raft) is Role.LEADER
    raft.tick(raft.now_ms + 50)
    assert role(raft) is Role.FOLLOWER


def test_stalled_shipments_begin_again() -> None:
    raft = leader()
    progress_of(raft).begin_install(raft.now_ms)
    raft.step(InstallResponse(2, ME, 1, 9, 0, True, raft.now_ms), raft.now_ms)
    assert [ack.chunk for ack in raft.ready().chunk_acks] == [0]
    for _ in range(100):
        raft.tick(raft.now_ms + 50)
        raft.step(beats(raft, 3, 1), raft.now_ms)
    assert raft.ready().installs == [2]
    raft.report_unreachable(2)
    raft.step(beats(raft, 2, 0), raft.now_ms)
    assert raft.ready().installs == [2]


def test_a_second_leader_of_the_term_is_not_followed() -> None:
    raft = leader()
    raft.step(heartbeat(term=1), raft.now_ms)
    assert role(raft) is Role.LEADER


def test_heartbeats_keep_their_time() -> None:
    raft = leader()
    due_ms = raft.deadline_ms
    raft.tick(due_ms - 1)
    assert said(raft) == []
    raft.tick(due_ms)
    assert [type(message) for message in said(raft)] == [Heartbeat, Heartbeat]
    assert raft.deadline_ms == due_ms + 50


def test_whose_handing_over_failed_sends_no_more_heartbeats_of_that_term() -> None:
    """Member 2 was told to stand and did not: the leader stands itself, and is no leader meanwhile."""
    raft = leader()
    raft.transfer(2, raft.now_ms)
    said(raft)
    while role(raft) is Role.LEADER:
        raft.tick(raft.now_ms + 50)
        sent = said(raft)
        for message in sent:
            assert isinstance(message, Heartbeat) is (role(raft) is Role.LEADER)
        raft.step(beats(raft, 3, 1), raft.now_ms)
    assert (raft.role, raft.term) == (Role.CANDIDATE, 2)
