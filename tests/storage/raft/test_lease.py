"""Since when a majority is known to listen, and what may be concluded from that."""

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.transitions import Role
from tests.storage.raft.cores import beats, core, drained, leader, role


def test_counts_from_when_it_was_sent() -> None:
    raft = leader()
    elected_ms = raft.now_ms
    raft.tick(elected_ms + 50)
    raft.step(beats(raft, 2, 1, sent_ms=elected_ms + 50), elected_ms + 90)
    assert raft.has_lease(elected_ms + 50 + 449)
    assert raft.contact_ms(elected_ms + 90) == elected_ms + 50
    assert not raft.has_lease(elected_ms + 50 + 450)
    raft.step(beats(raft, 3, 1, sent_ms=elected_ms + 10), elected_ms + 90)  # an older one adds nothing
    assert not raft.has_lease(elected_ms + 50 + 450)
    assert raft.contact_ms(elected_ms + 90) == elected_ms + 50


def test_needs_an_entry_of_the_term_and_answers_in_it() -> None:
    raft = leader(is_serving=False)
    raft.step(beats(raft, 2, 0), raft.now_ms)
    assert not raft.has_lease(raft.now_ms)
    assert not core().has_lease(0)


def test_the_only_voter_always_has_it() -> None:
    raft = leader(Configuration((1,), (), (2,)))
    assert raft.has_lease(raft.now_ms + 1_000_000)
    assert raft.contact_ms(raft.now_ms + 1_000_000) == raft.now_ms + 1_000_000


def test_a_majority_of_each_voter_set() -> None:
    raft = leader()
    raft.change_members([1, 4, 5])
    drained(raft)
    raft.step(beats(raft, 2, 1), raft.now_ms)
    assert not raft.has_lease(raft.now_ms)
    raft.step(beats(raft, 5, 0), raft.now_ms)
    assert raft.has_lease(raft.now_ms)


def test_learners_do_not_count() -> None:
    raft = leader(Configuration((1, 2, 3), (), (4,)))
    late_ms = raft.now_ms + 470
    raft.tick(late_ms)
    raft.step(beats(raft, 4, 1), late_ms)
    assert not raft.has_lease(late_ms)


def test_an_election_timeout_of_silent_heartbeats_ends_leadership() -> None:
    """Ten of 50 ms; one newer answer of a majority, and they are counted from the start."""
    raft = leader()
    for _ in range(10):
        raft.tick(raft.now_ms + 50)
    assert role(raft) is Role.LEADER
    raft.step(beats(raft, 2, 1), raft.now_ms)
    for _ in range(10):
        raft.tick(raft.now_ms + 50)
        assert role(raft) is Role.LEADER
    raft.tick(raft.now_ms + 50)
    assert role(raft) is Role.FOLLOWER
