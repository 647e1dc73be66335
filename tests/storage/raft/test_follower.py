"""The follower: what it takes, cuts, refuses and acknowledges, and how it follows the commit index."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.raft import follower
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.follower import IllegalTruncation
from lockstep.storage.raft.messages import Append, AppendResponse, HeartbeatResponse
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.transitions import Role
from tests.storage.raft.cores import (
    ME,
    START_MS,
    THREE,
    ballot,
    core,
    drained,
    entries,
    heartbeat,
    leader,
    said,
)
from tests.support.cases import each_case


def log_of(raft: Raft) -> list[int | None]:
    terms = raft.terms
    return [terms.term_at(index) for index in range(terms.base_index + 1, terms.last_index + 1)]


def accepted(match_index: int, prev_index: int) -> AppendResponse:
    return AppendResponse(ME, 2, 5, match_index, prev_index, 0, 0, 77)


def test_takes_what_is_new_and_answers_when_it_is_flushed() -> None:
    raft = core(terms=[4], term=5)
    raft.step(entries((1, 4), [4, 5]), START_MS)
    ready = raft.ready()
    assert (ready.accepted, ready.truncate_after, ready.messages) == ((2, 3), None, ())
    assert raft.ready().accepted is None  # handed out once
    assert (log_of(raft), raft.leader_id, raft.terms.size_between(2, 3)) == ([4, 4, 5], 2, 20)
    raft.on_persisted(2, 4, raft.truncation_count)
    assert said(raft) == [accepted(2, 1)]
    raft.on_persisted(3, 5, raft.truncation_count)
    assert said(raft) == [accepted(3, 1)]
    raft.step(entries((1, 4), [4, 5]), START_MS)  # doubled: answered at once, nothing to write
    ready = raft.ready()
    assert (ready.accepted, ready.messages) == (None, [accepted(3, 1)])


def test_a_request_that_ends_earlier_cuts_nothing() -> None:
    raft = core(terms=[4, 4, 4], term=5)
    raft.step(entries((0, 0), [4, 4]), START_MS)
    ready = drained(raft)
    assert (ready.accepted, raft.truncation_count, log_of(raft)) == (None, 0, [4, 4, 4])
    assert ready.messages == [accepted(2, 0)]  # the third entry is not verified


def test_cuts_where_terms_differ() -> None:
    raft = core(terms=[2, 2, 3, 3], term=5)
    raft.step(entries((1, 2), [2, 4, 5]), START_MS)
    ready = drained(raft)
    assert (ready.accepted, ready.truncate_after, raft.truncation_count) == ((3, 4), 2, 1)
    assert (log_of(raft), raft.persisted_index) == ([2, 2, 4, 5], 2)
    raft.on_persisted(4, 3, 0)  # of a write from before
    raft.on_persisted(4, 5, 0)
    assert raft.persisted_index == 2
    raft.on_persisted(4, 5, 1)
    assert said(raft) == [accepted(4, 1)]


@given(
    st.lists(st.integers(1, 3), max_size=6).map(sorted),
    st.lists(st.integers(1, 3), max_size=6).map(sorted),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_the_first_difference(own: list[int], theirs: list[int], base: int, prev: int) -> None:
    base, prev = min(base, len(own)), min(prev, len(theirs), len(own))
    raft = core(terms=own, term=5)
    raft.commit_index = base
    raft.terms.trim(base)
    append = entries((prev, theirs[prev - 1] if prev else 0), theirs[prev:])
    expected = next(
        (
            index
            for index in range(prev + 1, len(theirs) + 1)
            if index > len(own) or (index > base and own[index - 1] != theirs[index - 1])
        ),
        len(theirs) + 1,
    )
    if len(theirs) > prev:
        assert follower._first_difference(raft, append) == expected


def test_what_is_committed_is_never_cut() -> None:
    raft = core(terms=[2, 2], term=5)
    raft.commit_index = 1
    with pytest.raises(IllegalTruncation, match="committed is 1"):
        raft.step(entries((0, 0), [3]), START_MS)
    assert log_of(raft) == [2, 2]


def test_rejects_what_does_not_follow_with_a_hint() -> None:
    raft = core(terms=[2, 2, 4, 4], term=5)
    for prev, hint in (((6, 4), (4, 4)), ((4, 3), (2, 2)), ((9, 1), (0, 0)), ((3, 5), (3, 4))):
        raft.step(entries(prev, [5]), START_MS)
        assert said(raft) == [AppendResponse(ME, 2, 5, -1, prev[0], *hint, 77)]
    assert (log_of(raft), raft.truncation_count) == ([2, 2, 4, 4], 0)


def test_below_the_commit_index_logs_are_equal() -> None:
    raft = core(terms=[4, 4], base=(10, 3), term=5)
    raft.step(entries((7, 2), [2, 3, 3, 4]), START_MS)
    assert said(raft) == [accepted(11, 7)]
    raft.step(entries((7, 2), [2]), START_MS)
    assert said(raft) == [accepted(11, 7)]


BAD = entries((1, 4), [4, 5])


@each_case(
    "bad",
    [
        replace(BAD, prev_index=-1),
        replace(BAD, last_index=0, runs=()),
        replace(BAD, commit_index=-1),
        replace(BAD, runs=()),
        replace(BAD, runs=((3, 5),)),
        replace(BAD, runs=((2, 4), (2, 5))),
        replace(BAD, runs=((2, 4), (4, 5))),
        replace(BAD, runs=((2, 4), (3, 3))),
        replace(BAD, runs=((2, 3),)),
        replace(BAD, runs=((2, 4), (3, 6))),
        replace(BAD, last_index=1),
        replace(BAD, sizes=(1,)),
        replace(BAD, sizes=()),
        replace(BAD, configurations=((1, THREE),)),
        replace(BAD, configurations=((4, THREE),)),
        replace(BAD, configurations=((3, THREE), (3, THREE))),
        entries((1, 4), [], term=5, configurations=((1, THREE),)),
    ],
)
def test_requests_that_make_no_sense_are_ignored(bad: Append) -> None:
    raft = core(terms=[4], term=5)
    raft.step(bad, START_MS)
    assert (log_of(raft), raft.leader_id, said(raft)) == ([4], -1, [])
    raft.step(BAD, START_MS)
    assert log_of(raft) == [4, 4, 5]


def test_one_leader_per_term() -> None:
    raft = core(term=5)
    raft.step(heartbeat(), START_MS)
    drained(raft)
    raft.step(entries((0, 0), [5], sender=3), START_MS)
    raft.step(heartbeat(sender=3), START_MS)
    assert (raft.leader_id, raft.last_index, said(raft)) == (2, 0, [])
    own = leader()
    for message in (entries((0, 0), [1, 1], term=1), heartbeat(term=1)):
        own.step(message, own.now_ms)
    assert (own.role, own.last_index) == (Role.LEADER, 1)


def test_a_leader_of_the_term_ends_a_candidacy() -> None:
    raft = core(term=4)
    raft.tick(raft.deadline_ms)
    raft.step(heartbeat(term=4), raft.now_ms)
    assert (raft.role, raft.leader_id) == (Role.FOLLOWER, 2)


def test_configurations_come_and_go_with_their_entries() -> None:
    raft = core(terms=[4], term=5)
    two, other = Configuration((1, 2)), Configuration((1, 3))
    raft.step(entries((1, 4), [4, 4], configurations=[(2, two), (3, other)]), START_MS)
    drained(raft)
    assert raft.configuration == other
    raft.step(entries((2, 4), [6], term=6, sender=3, configurations=[(3, THREE)]), START_MS)
    assert (raft.configuration, raft.configurations.previous) == (THREE, two)
    raft.step(entries((1, 4), [4, 6], term=6, sender=3, configurations=[(2, two), (3, THREE)]), START_MS)
    again = entries((1, 4), [4, 6, 6], term=6, sender=3, configurations=[(2, two), (3, THREE)])
    raft.step(again, START_MS)
    assert (drained(raft).accepted, raft.configurations.current_index) == ((4, 4), 3)


def test_commit_is_the_least_of_three() -> None:
    raft = core(terms=[4, 4], term=5)
    raft.step(heartbeat(commit_index=2), START_MS)  # flushed, not verified
    assert (raft.commit_index, said(raft)) == (0, [HeartbeatResponse(ME, 2, 5, 0, 77)])
    raft.step(entries((2, 4), [5, 5], commit_index=3), START_MS)  # verified, not flushed
    assert raft.commit_index == 2
    raft.on_persisted(4, 5, 0)
    assert raft.commit_index == 3  # as far as the leader's
    drained(raft)
    raft.step(heartbeat(commit_index=1, sent_ms=70), START_MS)  # late
    assert (raft.commit_index, said(raft)) == (3, [HeartbeatResponse(ME, 2, 5, 4, 77)])


def test_another_leader_must_verify_again() -> None:
    raft = core(terms=[4, 4], term=5)
    raft.step(entries((2, 4), []), START_MS)
    assert raft.follower_state.verified_index == 2
    raft.step(heartbeat(term=6, commit_index=2, sender=3), START_MS)
    assert (raft.commit_index, raft.follower_state.verified_index) == (0, 0)


def test_a_later_request_is_owed_not_an_earlier_one() -> None:
    raft = core(term=5)
    raft.step(entries((0, 0), [5, 5]), START_MS)
    drained(raft)
    raft.step(entries((0, 0), [5]), START_MS)  # overtaken
    assert said(raft) == []
    raft.on_persisted(2, 5, 0)
    assert said(raft) == [accepted(2, 0)]
    raft.step(entries((2, 5), [5]), START_MS)
    drained(raft)
    raft.leader_id = -1  # it is heard no more
    raft.on_persisted(3, 5, 0)
    assert said(raft) == []
    raft.step(ballot(9, (9, 9), transfer=True), START_MS)
    assert raft.follower_state.pending_ack_index == -1
