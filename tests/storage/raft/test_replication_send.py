"""What a leader sends, to whom, and when it waits."""

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, Heartbeat
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import RaftSettings
from tests.storage.raft.cores import ME, drained, holds, lacks, leader, said

TWO = Configuration((1, 2))


def ranges(raft: Raft, to: int = 2) -> list[tuple[int, int]]:
    """Previous and last index of each request to a member."""
    return [
        (message.prev_index, message.last_index) for message in said(raft, to) if isinstance(message, Append)
    ]


def test_a_new_leader_sends_its_no_op_as_a_question() -> None:
    raft = leader(terms=[1, 3], is_serving=False)
    assert raft.ready().messages == ()
    raft = leader(TWO, terms=[1, 3])
    assert raft.term == 4


def test_the_no_op_and_what_follows_a_hint() -> None:
    raft = leader(TWO, terms=[1, 1, 3], is_serving=False)
    raft.step(lacks(raft, 2, 3, (2, 2)), raft.now_ms)
    assert ranges(raft) == [(2, 2)]  # a guess is a question
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert said(raft) == [
        Append(ME, 2, 4, 2, 1, ((3, 3), (4, 4)), 4, (), 0, raft.now_ms),
    ]


def test_seed_mode_one_request_takes_all_that_gathered() -> None:
    raft = leader(TWO, settings=RaftSettings(pipeline_depth=1))
    raft.propose(10)
    assert ranges(raft) == [(1, 2)]
    raft.propose(10)
    raft.propose(10)
    assert ranges(raft) == []
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert ranges(raft) == [(2, 4)]


def test_a_pipeline_is_filled_with_capped_requests() -> None:
    raft = leader(TWO, settings=RaftSettings(pipeline_depth=2, max_append_bytes=25))
    for size in (10, 10, 10, 99, 10):
        raft.propose(size)
    assert ranges(raft) == [(1, 3), (3, 4)]
    raft.step(holds(raft, 2, 3), raft.now_ms)
    assert ranges(raft) == [(4, 5)]  # one entry always goes


def test_what_members_in_touch_lack_is_needed_again() -> None:
    raft = leader(settings=RaftSettings(pipeline_depth=1, max_append_bytes=25))
    assert raft.lowest_active_match(0) == raft.terms.last_index == 1
    for _ in range(6):
        raft.propose(10)
    drained(raft)
    assert raft.lowest_active_match(0) == 1
    raft.step(holds(raft, 2, 3), raft.now_ms)
    drained(raft)
    assert raft.lowest_active_match(0) == 1, "the other one is behind"
    assert raft.lowest_active_match(2) == 3, "who needs what is not kept is sent it from the disk"
    assert raft.lowest_active_match(4) is None
    raft.report_unreachable(3)
    assert raft.lowest_active_match(0) == 3, "nothing is sent to who is lost"
    for _ in range(2):
        raft.tick(raft.now_ms + 200)
        drained(raft)
    assert raft.lowest_active_match(0) is None, "nor entries to who answers nothing"
    raft.resign()
    assert raft.lowest_active_match(0) is None


def test_a_commit_is_pushed_to_those_with_nothing_under_way() -> None:
    raft = leader()
    raft.propose()
    drained(raft)
    raft.on_persisted(2, raft.term, 0)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert said(raft) == [Heartbeat(ME, 2, raft.term, 2, raft.now_ms)]
    raft.step(holds(raft, 3, 2), raft.now_ms)
    assert said(raft) == [Heartbeat(ME, 3, raft.term, 2, raft.now_ms)]
    assert said(raft) == []  # once


def test_no_member_gets_a_commit_index_beyond_its_log() -> None:
    raft = leader()
    raft.report_unreachable(3)
    raft.propose()
    drained(raft)
    raft.on_persisted(2, raft.term, 0)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert [message.to for message in said(raft)] == [2]


def test_a_spare_is_sent_entries_later_and_no_commit_before_them() -> None:
    raft = leader(settings=RaftSettings(deferral_ms=20, probe_commits=1))
    raft.propose()
    assert [message.to for message in said(raft)] == [2, 3]  # a race
    raft.on_persisted(2, raft.term, 0)
    for member in (2, 3):
        raft.step(holds(raft, member, 2), raft.now_ms)
    drained(raft)
    raft.propose()
    assert [message.to for message in said(raft)] == [2]
    raft.on_persisted(3, raft.term, 0)
    raft.step(holds(raft, 2, 3), raft.now_ms)
    assert [message.to for message in said(raft)] == [2]
    raft.tick(raft.now_ms + 20)
    appended = [message for message in said(raft, to=3) if isinstance(message, Append)]
    assert [(each.prev_index, each.last_index, each.commit_index) for each in appended] == [(2, 3, 3)]


def test_entries_that_are_gone_come_as_a_checkpoint() -> None:
    raft = leader(terms=[1, 1, 1])
    raft.on_checkpoint(3)
    raft.step(lacks(raft, 3, 9, (0, 0)), raft.now_ms)  # stale
    assert raft.ready().installs == ()
    raft.change_members([1, 2, 3], [4])
    ready = raft.ready()
    assert ready.configuration is not None
    raft.step(lacks(raft, 4, 4, (0, 0)), raft.now_ms)
    assert raft.ready().installs == [4]
    assert raft.ready().installs == ()


def test_a_silent_member_is_probed_before_it_is_sent_entries_again() -> None:
    raft = leader(TWO)
    raft.propose(10)
    assert ranges(raft) == [(1, 2)]
    for expected in (1, 2), (1, 1):
        raft.tick(raft.now_ms + 200)
        assert ranges(raft) == [expected]


def test_a_commit_waits_a_moment_for_entries_that_carry_it() -> None:
    raft = leader(settings=RaftSettings(commit_push_ms=3))
    raft.propose()
    drained(raft)
    raft.on_persisted(2, raft.term, 0)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert raft.commit_index == 2
    assert said(raft) == [], "not at once"
    due_ms = raft.deadline_ms
    assert due_ms == raft.now_ms + 3
    raft.step(holds(raft, 3, 2), raft.now_ms + 1)
    assert (said(raft), raft.deadline_ms) == ([], due_ms), "the wait does not begin again"
    raft.tick(due_ms)
    pushed = [(m.to, m.commit_index) for m in said(raft) if isinstance(m, Heartbeat)]
    assert pushed == [(2, 2), (3, 2)]
    assert raft.deadline_ms > due_ms + 3, "nothing is owed any more"


def test_entries_carry_a_commit_that_waits() -> None:
    raft = leader(TWO, settings=RaftSettings(commit_push_ms=3))
    raft.propose()
    drained(raft)
    raft.on_persisted(2, raft.term, 0)
    raft.step(holds(raft, 2, 2), raft.now_ms)
    assert said(raft) == []
    due_ms = raft.deadline_ms
    raft.propose()
    assert [m.commit_index for m in said(raft) if isinstance(m, Append)] == [2]
    assert raft.deadline_ms > due_ms
