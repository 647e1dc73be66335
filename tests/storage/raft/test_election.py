"""Asking, standing, voting, winning, and losing."""

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Heartbeat, TimeoutNow, VoteRequest, VoteResponse
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState
from tests.storage.raft.cores import ME, START_MS, ballot, core, drained, give_votes, leader, role, said
from tests.support.cases import each_case

FIVE = Configuration((1, 2, 3, 4, 5))


def test_a_pre_vote_precedes_the_campaign_which_waits_for_its_flushed_vote() -> None:
    raft = core(terms=[4])
    raft.tick(raft.deadline_ms - 1)
    assert role(raft) is Role.FOLLOWER
    raft.tick(raft.deadline_ms)
    assert (raft.role, raft.term) == (Role.PRE_CANDIDATE, 4)
    ready = raft.ready()
    assert ready.hard_state is None  # PreVote changes nothing on the disk
    assert ready.messages == [VoteRequest(ME, to, 5, True, 1, 4) for to in (2, 3)]
    raft.step(VoteResponse(2, ME, 5, True, True), START_MS)
    assert (raft.role, raft.term, raft.voted_for) == (Role.CANDIDATE, 5, ME)
    ready = raft.ready()
    assert (ready.hard_state, ready.messages) == (HardState(5, ME), ())
    raft.on_hard_state_persisted(HardState(5, ME))
    assert raft.ready().messages == [VoteRequest(ME, to, 5, False, 1, 4) for to in (2, 3)]
    raft.step(VoteResponse(3, ME, 5, False, True), START_MS)
    assert (raft.role, raft.leader_id) == (Role.LEADER, ME)


def test_a_pre_vote_of_a_shorter_log_without_a_leader_starts_a_campaign() -> None:
    raft = core(terms=[4, 4])
    due_ms = raft.election_due_ms = START_MS + 900
    asked = VoteRequest(3, ME, 5, True, 1, 4)
    raft.step(asked, START_MS + 1)  # the promise to a leader of before the start lasts still
    assert raft.deadline_ms == due_ms
    raft.step(asked, START_MS + 501)
    assert [each.granted for each in said(raft) if isinstance(each, VoteResponse)] == [False, False]
    assert raft.deadline_ms == START_MS + 501
    raft.tick(START_MS + 501)
    assert role(raft) is Role.PRE_CANDIDATE
    due_ms = raft.deadline_ms
    raft.step(asked, START_MS + 502)
    assert raft.deadline_ms == due_ms, "who stands already does not begin again"


def test_a_pre_vote_is_repeated_once_the_voter_that_rejected_it_campaigns() -> None:
    raft = core(terms=[4, 4])
    raft.tick(raft.deadline_ms)
    drained(raft)
    now_ms = raft.now_ms
    raft.step(VoteResponse(3, ME, 4, True, False), now_ms)
    assert role(raft) is Role.PRE_CANDIDATE, "the third voter has not answered, and never will"
    assert raft.deadline_ms > now_ms + 400
    raft.step(VoteRequest(3, ME, 5, True, 1, 4), now_ms + 2)
    assert raft.deadline_ms == now_ms + 2
    raft.tick(now_ms + 2)
    assert [each for each in said(raft) if isinstance(each, VoteRequest)] == [
        VoteRequest(ME, to, 5, True, 2, 4) for to in (2, 3)
    ]


def test_timers_differ() -> None:
    raft = core()
    raft.random_below = lambda n: n - 1
    raft.tick(raft.deadline_ms)
    assert raft.deadline_ms == START_MS + 500 + 500 + 499


def test_only_answers_to_the_open_question_from_voters_count() -> None:
    raft = core(FIVE, terms=[4])
    raft.tick(raft.deadline_ms)
    now_ms = raft.now_ms
    for stray in (
        VoteResponse(9, ME, 5, True, True),  # no voter
        VoteResponse(2, ME, 5, False, False),  # a later term, and an answer to no question: enters that term
    ):
        raft.step(stray, now_ms)
        assert role(raft) is not Role.CANDIDATE
    assert (raft.role, raft.term) == (Role.FOLLOWER, 5)

    raft = core(FIVE, terms=[4])
    raft.tick(raft.deadline_ms)
    raft.step(VoteResponse(2, ME, 6, True, True), raft.now_ms)  # of another question
    raft.step(VoteResponse(3, ME, 4, False, True), raft.now_ms)  # a vote, while only asking
    raft.step(VoteResponse(4, ME, 5, True, True), raft.now_ms)
    raft.step(VoteResponse(4, ME, 5, True, True), raft.now_ms)  # twice
    assert role(raft) is Role.PRE_CANDIDATE
    raft.step(VoteResponse(5, ME, 5, True, True), raft.now_ms)
    drained(raft)
    raft.step(VoteResponse(2, ME, 5, True, True), raft.now_ms)  # late: it would have voted
    raft.step(VoteResponse(3, ME, 5, False, True), raft.now_ms)
    assert role(raft) is Role.CANDIDATE
    raft.step(VoteResponse(2, ME, 5, False, True), raft.now_ms)
    assert role(raft) is Role.LEADER


def test_a_majority_that_refuses_ends_it() -> None:
    raft = core(terms=[4])
    raft.tick(raft.deadline_ms)
    raft.step(VoteResponse(2, ME, 4, True, False), raft.now_ms)
    assert role(raft) is Role.PRE_CANDIDATE
    raft.step(VoteResponse(3, ME, 4, True, False), raft.now_ms)
    assert role(raft) is Role.FOLLOWER
    raft.tick(raft.deadline_ms)
    raft.step(VoteResponse(2, ME, 5, True, True), raft.now_ms)
    drained(raft)
    raft.step(VoteResponse(2, ME, 5, False, False), raft.now_ms)
    raft.step(VoteResponse(3, ME, 5, False, False), raft.now_ms)
    assert (raft.role, raft.term) == (Role.FOLLOWER, 5)


def test_a_split_vote_is_followed_by_a_question() -> None:
    raft = core(terms=[4])
    raft.tick(raft.deadline_ms)
    raft.tick(raft.deadline_ms)  # too few answered: asks again
    assert role(raft) is Role.PRE_CANDIDATE
    raft.step(VoteResponse(2, ME, 5, True, True), raft.now_ms)
    drained(raft)
    raft.tick(raft.deadline_ms)
    assert (raft.role, raft.term) == (Role.PRE_CANDIDATE, 5)


@each_case(
    ("last", "granted"), [((2, 4), True), ((9, 3), False), ((1, 4), False), ((1, 5), True), ((3, 4), True)]
)
@each_case("pre", [True, False])
def test_votes_for_no_log_that_is_behind(last: tuple[int, int], granted: bool, pre: bool) -> None:
    raft = core(terms=[4, 4])
    raft.step(ballot(6, last, pre), START_MS + 500)
    term = 6 if granted or not pre else 4
    assert said(raft) == [VoteResponse(ME, 2, term, pre, granted)]
    assert raft.voted_for == (2 if granted and not pre else -1)


def test_one_vote_per_term_flushed_before_it_is_sent() -> None:
    raft = core(terms=[4])
    raft.step(ballot(5, (1, 4)), START_MS + 500)
    ready = raft.ready()
    assert (ready.hard_state, ready.messages) == (HardState(5, 2), ())
    raft.step(ballot(5, (9, 4), sender=3), START_MS + 500)
    raft.on_hard_state_persisted(HardState(5, -1))  # stale
    assert raft.ready().messages == ()
    raft.on_hard_state_persisted(HardState(5, 2))
    assert raft.ready().messages == [
        VoteResponse(ME, 2, 5, False, True),
        VoteResponse(ME, 3, 5, False, False),
    ]
    raft.step(ballot(5, (1, 4)), START_MS + 500)  # doubled
    ready = raft.ready()
    assert (ready.hard_state, ready.messages) == (None, [VoteResponse(ME, 2, 5, False, True)])


def test_a_pre_candidate_that_votes_for_another_stops_its_pre_vote() -> None:
    raft = core(terms=[4], term=5)
    raft.tick(raft.deadline_ms)
    raft.step(ballot(5, (1, 4)), raft.now_ms)
    assert (raft.role, raft.voted_for) == (Role.FOLLOWER, 2)
    assert raft.deadline_ms == raft.now_ms + 500


def test_no_question_for_a_term_that_is_here_already() -> None:
    raft = core(terms=[4], term=5)
    raft.step(ballot(5, (1, 4), pre=True), START_MS + 500)
    assert said(raft) == [VoteResponse(ME, 2, 5, True, False)]


def test_timeout_now_starts_a_campaign() -> None:
    raft = core(terms=[4])
    raft.step(TimeoutNow(2, ME, 4), START_MS)  # although a leader was just heard
    assert (raft.role, raft.term) == (Role.CANDIDATE, 5)
    assert said(raft, 3) == [VoteRequest(ME, 3, 5, False, 1, 4, transfer=True)]
    raft.step(TimeoutNow(2, ME, 5), START_MS)  # a candidate already
    assert raft.term == 5
    learner = core(Configuration((2, 3), (), (1,)), terms=[4])
    learner.step(TimeoutNow(2, ME, 4), START_MS)
    assert learner.role is Role.FOLLOWER


def test_the_only_voter_needs_nobody() -> None:
    raft = core(Configuration((1,)))
    assert raft.deadline_ms == START_MS
    raft.campaign(START_MS)
    assert role(raft) is Role.CANDIDATE
    drained(raft)
    assert role(raft) is Role.LEADER
    raft.on_hard_state_persisted(HardState(1, 1))  # once more
    assert role(raft) is Role.LEADER


def test_of_a_joint_configuration_both_sets_must_vote() -> None:
    raft = core(Configuration((1, 2, 3), (1, 4, 5)), terms=[4])
    raft.tick(raft.deadline_ms)
    assert [message.to for message in raft.ready().messages] == [2, 3, 4, 5]
    raft.step(VoteResponse(2, ME, 5, True, True), raft.now_ms)
    assert role(raft) is Role.PRE_CANDIDATE
    raft.step(VoteResponse(5, ME, 5, True, True), raft.now_ms)
    assert role(raft) is Role.CANDIDATE


def test_two_voters_need_each_other() -> None:
    raft = core(Configuration((1, 2)))
    give_votes(raft, [])
    assert role(raft) is Role.PRE_CANDIDATE
    assert leader(Configuration((1, 2))).is_serving


def test_the_lease_rule_holds_in_a_term_that_an_answer_brought_us_to() -> None:
    """Seen by the simulator: a leader's lease rests on us, and a late refusal moves us to its next term."""
    raft = core(terms=[4])
    raft.step(Heartbeat(2, ME, 4, 0, START_MS), START_MS)
    raft.step(VoteResponse(3, ME, 5, True, False), START_MS + 1)
    assert raft.term == 5
    drained(raft)
    within = START_MS + raft.settings.election_timeout_ms - 1
    raft.step(VoteRequest(3, ME, 5, False, 9, 4), within)
    assert said(raft) == [VoteResponse(ME, 3, 5, False, False)]
    assert raft.voted_for == -1
    raft.step(VoteRequest(3, ME, 5, False, 9, 4), within + 1)
    assert raft.voted_for == 3
