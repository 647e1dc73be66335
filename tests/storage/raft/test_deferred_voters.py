"""Whom entries reach a little later, until when, and who changes places with whom."""

from __future__ import annotations

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.deferred_voters import PROBE_INTERVAL_MS, DeferredVoters
from lockstep.storage.raft.messages import Append
from lockstep.storage.raft.progress import SendState
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import NEVER_MS, RaftSettings
from tests.storage.raft.cores import THREE, drained, holds, leader, said

FIVE = Configuration((1, 2, 3, 4, 5))
WAIT_MS, HEDGE_MS = 20, 3


def sparing(
    configuration: Configuration = THREE, probe_commits: int = 4, max_append_bytes: int = 1 << 20
) -> Raft:
    """Leader 1, whose first race is over: nobody was late in it."""
    settings = RaftSettings(
        deferral_ms=WAIT_MS, hedge_ms=HEDGE_MS, probe_commits=probe_commits, max_append_bytes=max_append_bytes
    )
    raft = leader(configuration, settings=settings)
    raced(raft)
    assert spares_of(raft).probe_commits_left == 0
    return raft


def spares_of(raft: Raft) -> DeferredVoters:
    assert raft.leader_state is not None
    return raft.leader_state.deferred_voters


def raced(raft: Raft, late: tuple[int, ...] = (), commits: int | None = None) -> None:
    """A race, or some commits of it; `late` are the members (ourselves, too) that come after the commit."""
    for _ in range(spares_of(raft).probe_commits_left if commits is None else commits):
        index = raft.propose()
        assert sorted(sent(raft)) == [each for each in raft.configuration.members if each != raft.member_id]
        everybody = list(raft.configuration.members)
        for member in [*(each for each in everybody if each not in late), *late]:
            flushed(raft, member, index)
        assert raft.commit_index == index
        drained(raft)


def flushed(raft: Raft, member: int, index: int) -> None:
    if member == raft.member_id:
        raft.on_persisted(index, raft.term, raft.truncation_count)
    else:
        raft.step(holds(raft, member, index), raft.now_ms)


def sent(raft: Raft) -> dict[int, tuple[int, int]]:
    """The range of entries that each is sent now."""
    return {
        each.to: (each.prev_index + 1, each.last_index) for each in said(raft) if isinstance(each, Append)
    }


def committed(raft: Raft, *members: int) -> int:
    """One more entry, held by us and these; what is said meanwhile is lost."""
    index = raft.propose(10)
    drained(raft)
    for member in (raft.member_id, *members):
        flushed(raft, member, index)
    assert raft.commit_index == index
    return index


def hedged(raft: Raft) -> int:
    """One more entry, which the first is sent at once and the spare after `HEDGE_MS`."""
    index = raft.propose()
    assert sent(raft) == {2: (index, index)}
    assert raft.deadline_ms == raft.now_ms + HEDGE_MS
    raft.tick(raft.now_ms + HEDGE_MS)
    assert sent(raft) == {3: (index, index)}
    return index


def test_without_a_wait_all_are_sent_everything_at_once() -> None:
    raft = leader()
    raft.propose()
    assert sorted(sent(raft)) == [2, 3]


def test_the_first_immediate_voters_are_the_next_in_the_ring() -> None:
    assert DeferredVoters((1, 2, 3), 1).deferred == {3}
    assert DeferredVoters((1, 2, 3), 2).deferred == {1}
    assert DeferredVoters((1, 2, 3), 3).deferred == {2}
    assert DeferredVoters((1, 2, 3, 4, 5), 2).deferred == {5, 1}
    assert DeferredVoters((1, 2, 3, 4), 4).deferred == {3}
    assert DeferredVoters((3, 1, 2), 1).deferred == {3}, "founders are named in any order"


def test_a_learner_or_a_leader_of_two_has_no_deferred_voter() -> None:
    assert DeferredVoters((), 1).deferred == set()
    assert DeferredVoters((2, 3, 4), 1).deferred == set()
    assert DeferredVoters((1, 2), 1).deferred == set()
    assert DeferredVoters((1,), 1).deferred == set()


def test_a_spare_is_sent_what_came_meanwhile_in_one_request_when_its_time_has_come() -> None:
    raft = sparing()
    first = committed(raft, 2)
    began_ms = raft.now_ms
    for _ in range(3):
        raft.tick(raft.now_ms + 2)
        last = raft.propose(10)
        assert sent(raft) == {2: (last, last)}
        flushed(raft, 1, last)
        flushed(raft, 2, last)
        assert raft.commit_index == last, "a commit does not wait for it"
    assert said(raft, 3) == [], "the commit is not pushed either: entries will carry it"
    assert raft.deadline_ms == began_ms + WAIT_MS
    raft.tick(began_ms + WAIT_MS - 1)
    assert said(raft, 3) == []
    raft.tick(began_ms + WAIT_MS)
    assert sent(raft) == {3: (first, last)}
    assert spares_of(raft).due_ms == NEVER_MS


def test_its_wait_begins_again_with_what_comes_after() -> None:
    raft = sparing()
    committed(raft, 2)
    raft.tick(raft.now_ms + WAIT_MS)
    assert 3 in sent(raft)
    raft.tick(raft.now_ms + 7)
    index = committed(raft, 2)
    raft.tick(raft.now_ms + WAIT_MS - 1)
    assert said(raft, 3) == []
    raft.tick(raft.now_ms + 1)
    assert sent(raft) == {3: (index, index)}


def test_half_a_request_is_not_kept_waiting() -> None:
    raft = sparing(max_append_bytes=200)
    raft.propose(60)
    assert sorted(sent(raft)) == [2]
    last = raft.propose(40)
    assert sent(raft) == {2: (last, last), 3: (last - 1, last)}


def test_a_commit_that_takes_long_is_hedged_whether_or_not_our_own_disk_has_it() -> None:
    hedged(sparing())
    raft = sparing()
    index = raft.propose()
    assert sent(raft) == {2: (index, index)}
    flushed(raft, 1, index)
    raft.tick(raft.now_ms + HEDGE_MS)
    assert sent(raft) == {3: (index, index)}


def test_a_hedge_that_was_not_needed_changes_nothing() -> None:
    raft = sparing()
    index = hedged(raft)
    flushed(raft, 1, index)
    flushed(raft, 2, index)
    assert spares_of(raft).probe_commits_left == 0
    assert spares_of(raft).deferred == {3}
    later = raft.propose()
    assert sent(raft) == {2: (later, later)}


def test_a_hedge_that_was_needed_begins_a_race() -> None:
    raft = sparing()
    index = hedged(raft)
    flushed(raft, 1, index)
    flushed(raft, 3, index)
    assert spares_of(raft).probe_commits_left == 4
    raced(raft, late=(2,))
    assert spares_of(raft).deferred == {2}
    last = raft.propose()
    assert sent(raft) == {3: (last, last)}


def test_time_without_entries_is_no_wait_for_a_commit() -> None:
    raft = sparing()
    committed(raft, 2)
    raft.tick(raft.now_ms + WAIT_MS)
    drained(raft)
    flushed(raft, 3, raft.last_index)
    drained(raft)
    raft.tick(raft.now_ms + 10 * HEDGE_MS)
    drained(raft)
    last = raft.propose()
    assert sent(raft) == {2: (last, last)}


def test_a_probe_each_second_defers_the_voter_that_is_late_most_often() -> None:
    raft = sparing()
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS - 1)
    drained(raft)
    assert spares_of(raft).probe_commits_left == 0
    raft.tick(raft.now_ms + 1)
    drained(raft)
    assert spares_of(raft).probe_commits_left == 4
    raced(raft, late=(2,), commits=2)
    raced(raft, late=(3,))
    assert spares_of(raft).deferred == {3}, "as often as the other"
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    raced(raft, late=(2,), commits=3)
    raced(raft, late=(3,))
    assert spares_of(raft).deferred == {2}


def test_of_five_two_are_first_and_the_slowest_of_them_makes_way_for_the_quickest() -> None:
    raft = sparing(FIVE)
    last = raft.propose()
    assert sorted(sent(raft)) == [2, 3]
    for member in FIVE.members:
        flushed(raft, member, last)
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    raced(raft, late=(3, 4))
    assert spares_of(raft).deferred == {3, 4}


def test_a_leader_whose_own_disk_is_slow_needs_all_others_until_the_next_race() -> None:
    raft = sparing()
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    raced(raft, late=(1,))
    assert spares_of(raft).deferred == set()
    last = raft.propose()
    assert sorted(sent(raft)) == [2, 3]
    for member in 2, 3, 1:
        flushed(raft, member, last)
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    raced(raft)
    assert spares_of(raft).deferred == {3}


def test_a_transfer_target_is_sent_everything() -> None:
    raft = sparing()
    index = committed(raft, 2)
    assert said(raft, 3) == []
    raft.transfer(3, raft.now_ms)
    assert sent(raft) == {3: (index, index)}


def test_a_voter_that_must_be_probed_is_not_deferred() -> None:
    raft = sparing()
    raft.report_unreachable(3)
    drained(raft)
    raft.step(holds(raft, 3, 0), raft.now_ms)  # it speaks again
    index = raft.propose()
    assert 3 in sent(raft)
    flushed(raft, 3, index)
    last = raft.propose()
    assert sent(raft) == {2: (last, last)}


def test_while_members_change_nobody_waits_and_then_the_new_voters_count() -> None:
    raft = sparing()
    raft.change_members((1, 2, 4))
    assert {2, 3} <= set(sent(raft)), "the configuration itself reaches all at once"
    assert spares_of(raft).deferred == set(), "two voter sets"
    for member in 1, 2, 3, 4:
        flushed(raft, member, raft.last_index)
    assert 2 in sent(raft), "the new voters alone"
    assert raft.leader_state is not None
    assert raft.leader_state.change_pending
    assert spares_of(raft).deferred == {4}
    last = raft.propose()
    assert sent(raft) == {2: (last, last), 4: (last, last)}, "not settled yet"
    for member in 1, 2:
        flushed(raft, member, last)
    assert not raft.leader_state.change_pending


def test_a_race_counts_once_the_spare_has_caught_up() -> None:
    raft = sparing()
    for _ in range(3):
        last = committed(raft, 2)
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    index = raft.propose()
    drained(raft)
    flushed(raft, 1, index)
    flushed(raft, 2, index)
    assert spares_of(raft).probe_commits_left == 4, "it has still to write what it was not sent before"
    flushed(raft, 3, last)
    index = raft.propose()
    drained(raft)
    flushed(raft, 1, index)
    flushed(raft, 2, index)
    assert spares_of(raft).probe_commits_left == 3


def test_a_race_does_not_wait_for_ever_for_a_spare_that_is_dead() -> None:
    raft = sparing()
    committed(raft, 2)
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    for _ in range(2 * 4 + 4):
        assert spares_of(raft).probe_commits_left > 0
        committed(raft, 2)
    assert spares_of(raft).probe_commits_left == 0
    assert spares_of(raft).deferred == {3}


def test_the_deferral_begins_with_the_entry_not_with_the_last_tick() -> None:
    raft = sparing()
    told_ms = raft.now_ms
    index = raft.propose(10, told_ms + 20)
    assert sent(raft) == {2: (index, index)}
    assert raft.deadline_ms == told_ms + 20 + HEDGE_MS
    raft.on_persisted(index, raft.term, raft.truncation_count, told_ms + 21)
    flushed(raft, 2, index)
    assert raft.now_ms == told_ms + 21
    drained(raft)
    assert raft.deadline_ms == told_ms + 20 + WAIT_MS


def test_a_spare_far_behind_what_the_log_still_has_is_shipped_a_checkpoint() -> None:
    raft = sparing()
    for _ in range(40):
        last = committed(raft, 2)
        raft.tick(raft.now_ms)
    raft.on_checkpoint(last - 8)
    raft.propose()
    drained(raft)
    progress = raft.progress(3)
    assert progress is not None
    assert progress.state is SendState.INSTALL


def test_where_one_of_the_first_is_lost_nobody_is_kept_waiting() -> None:
    raft = sparing()
    raft.report_unreachable(2)
    drained(raft)
    index = raft.propose()
    assert 3 in sent(raft)
    flushed(raft, 1, index)
    flushed(raft, 3, index)
    assert raft.commit_index == index


def test_where_nobody_is_a_spare_a_slow_commit_begins_no_race() -> None:
    raft = sparing()
    raft.tick(raft.now_ms + PROBE_INTERVAL_MS)
    drained(raft)
    raced(raft, late=(1,))
    index = raft.propose()
    drained(raft)
    raft.tick(raft.now_ms + 2 * HEDGE_MS)
    drained(raft)
    for member in 2, 3, 1:
        flushed(raft, member, index)
    assert spares_of(raft).probe_commits_left == 0
