"""When a member counts as up to date, with a real core."""

from __future__ import annotations

from lockstep.broker.membership.group_view import MAX_LAG_ENTRIES, DesiredMembers, is_up_to_date, observe
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import RaftSettings
from tests.storage.raft.cores import ME, beats, core, drained, holds, leader

DESIRED = DesiredMembers((1, 2, 3))
SMALL = RaftSettings(max_append_bytes=100)


def grown(raft: Raft, entries: int, size: int = 1) -> Raft:
    """The leader's log with more in it, and nobody has it yet."""
    for _ in range(entries):
        raft.propose(size)
    drained(raft)
    return raft


def test_only_a_leader_has_a_view() -> None:
    assert observe(core(), DESIRED) is None
    seen = observe(leader(Configuration((1, 2, 3), (), (4,))), DESIRED)
    assert seen is not None
    assert (seen.leader, seen.voters, seen.learners) == (ME, (1, 2, 3), (4,))
    assert (seen.no_change_pending, seen.is_nearly_committed, seen.desired) == (True, True, DESIRED)
    assert seen.up_to_date == {1, 2, 3, 4}


def test_it_is_not_settled_before_the_leader_serves() -> None:
    seen = observe(leader(is_serving=False), DESIRED)
    assert seen is not None
    assert not seen.no_change_pending


def test_it_is_not_settled_while_members_change() -> None:
    raft = leader()
    raft.change_members([1, 2, 3], [4])
    wished = observe(raft, DESIRED)
    drained(raft)
    appended = observe(raft, DESIRED)
    raft.on_persisted(raft.last_index, raft.term, raft.truncation_count)
    raft.step(holds(raft, 2, raft.last_index), raft.now_ms)
    committed = observe(raft, DESIRED)
    assert wished is not None and appended is not None and committed is not None
    assert (wished.no_change_pending, appended.no_change_pending, committed.no_change_pending) == (
        False,
        False,
        True,
    )
    assert 4 not in committed.up_to_date


def test_it_is_not_settled_while_leadership_moves() -> None:
    raft = leader()
    raft.transfer(2, raft.now_ms)
    seen = observe(raft, DESIRED)
    assert seen is not None
    assert not seen.no_change_pending


def test_much_that_is_not_committed_weighs() -> None:
    seen = observe(grown(leader(), MAX_LAG_ENTRIES + 1), DESIRED)
    assert seen is not None
    assert not seen.is_nearly_committed


def test_a_silent_node_or_one_that_is_no_member_is_not_up_to_date() -> None:
    raft = leader(is_serving=False)
    assert is_up_to_date(raft, ME)
    assert not is_up_to_date(raft, 2)
    assert not is_up_to_date(raft, 9)


def test_a_node_without_a_recent_response_is_not_up_to_date() -> None:
    raft = leader()
    raft.tick(raft.now_ms + raft.settings.election_timeout_ms)
    assert is_up_to_date(raft, 2)
    raft.step(beats(raft, 3, raft.last_index), raft.now_ms)
    raft.tick(raft.now_ms + 1)
    assert not is_up_to_date(raft, 2)
    assert is_up_to_date(raft, 3)


def test_a_few_entries_or_a_pipeline_of_bytes_may_be_missing() -> None:
    assert is_up_to_date(grown(leader(), MAX_LAG_ENTRIES), 2)
    assert not is_up_to_date(grown(leader(), MAX_LAG_ENTRIES + 1), 2)
    assert is_up_to_date(grown(leader(settings=SMALL), 40, size=10), 2)
    assert not is_up_to_date(grown(leader(settings=SMALL), 41, size=10), 2)


def test_entries_beyond_any_limit_may_be_on_the_way() -> None:
    assert is_up_to_date(grown(leader(settings=SMALL), 4, size=10_000), 2)
    assert not is_up_to_date(grown(leader(settings=SMALL), 5, size=10_000), 2)


def test_a_node_that_needs_deleted_frames_is_not_up_to_date() -> None:
    raft = grown(leader(), 20)
    raft.on_persisted(raft.last_index, raft.term, raft.truncation_count)
    raft.step(holds(raft, 3, raft.last_index), raft.now_ms)
    raft.on_checkpoint(raft.commit_index - 1)
    assert raft.terms.base_index > 10
    assert is_up_to_date(raft, 3)
    assert not is_up_to_date(raft, 2)
