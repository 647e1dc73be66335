"""What messages of other terms do."""

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import (
    AppendResponse,
    HeartbeatResponse,
    Install,
    InstallResponse,
    Message,
    TimeoutNow,
    VoteResponse,
)
from lockstep.storage.raft.transitions import Role
from tests.storage.raft.cores import ME, START_MS, ballot, core, entries, heartbeat, leader, said
from tests.support.cases import each_case


@each_case(
    "message",
    [
        entries((0, 0), [], term=6),
        heartbeat(term=6),
        Install(2, ME, 6, 9, 6, 0, False, 77),
        AppendResponse(2, ME, 6, -1, 1, 0, 0, 77),
        HeartbeatResponse(2, ME, 6, 0, 77),
        InstallResponse(2, ME, 6, 9, 0, False, 77),
        VoteResponse(2, ME, 6, False, False),
        VoteResponse(2, ME, 6, True, False),
        ballot(6, (0, 0), transfer=True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_later_term_ends_leadership(message: Message) -> None:
    raft = leader()
    raft.step(message, raft.now_ms)
    assert (raft.role, raft.term) == (Role.FOLLOWER, 6)


@each_case(
    "message",
    [
        AppendResponse(9, ME, 6, -1, 1, 0, 0, 77),  # of one that is no member
        VoteResponse(9, ME, 6, False, False),
        TimeoutNow(2, ME, 6),
        ballot(6, (9, 5)),  # we hear a leader: ourselves
        ballot(6, (9, 5), pre=True),
        VoteResponse(2, ME, 6, True, True),  # late, and of a question
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_does_not_end_it(message: Message) -> None:
    raft = leader()
    raft.step(message, raft.now_ms)
    assert (raft.role, raft.term) == (Role.LEADER, 1)


def test_a_member_in_contact_with_a_leader_ignores_vote_requests() -> None:
    raft = core(terms=[4])
    raft.step(ballot(5, (9, 4), pre=True), START_MS + 499)
    assert said(raft) == [VoteResponse(ME, 2, 4, True, False)]
    raft.step(ballot(5, (9, 4)), START_MS + 499)
    assert (raft.term, said(raft)) == (4, [])
    raft.step(ballot(5, (9, 4), transfer=True), START_MS + 499)
    assert (raft.term, raft.voted_for) == (5, 2)


def test_members_of_an_older_term_get_the_newer_one() -> None:
    raft = core(Configuration((1, 2, 3)), term=5)
    for message, answer in (
        (ballot(4, (9, 4)), VoteResponse(ME, 2, 5, False, False)),
        (ballot(4, (9, 4), pre=True), VoteResponse(ME, 2, 5, True, False)),
        (entries((3, 2), [], term=4), AppendResponse(ME, 2, 5, -1, 3, 0, 0, 77)),
        (heartbeat(term=4), HeartbeatResponse(ME, 2, 5, 0, 77)),
        (Install(2, ME, 4, 9, 4, 1, False, 77), InstallResponse(ME, 2, 5, 9, 1, False, 77)),
    ):
        raft.step(message, START_MS)
        assert said(raft) == [answer]
    for silent in (VoteResponse(2, ME, 4, False, True), TimeoutNow(2, ME, 4)):
        raft.step(silent, START_MS)
        assert said(raft) == []
    assert (raft.term, raft.role) == (5, Role.FOLLOWER)


def test_a_granted_pre_vote_is_of_a_term_that_nobody_has_entered() -> None:
    raft = core(Configuration((1, 2, 3, 4, 5)), terms=[4])
    raft.tick(raft.election_due_ms)
    raft.step(VoteResponse(2, ME, 5, True, True), raft.now_ms)
    assert (raft.role, raft.term, raft.granted) == (Role.PRE_CANDIDATE, 4, {ME: True, 2: True})


def test_a_pre_vote_is_granted_without_entering_its_term() -> None:
    raft = core(terms=[4])
    raft.step(ballot(5, (9, 4), pre=True), START_MS + 500)  # no leader is heard any more
    assert said(raft) == [VoteResponse(ME, 2, 5, True, True)]
    assert (raft.term, raft.voted_for) == (4, -1)
