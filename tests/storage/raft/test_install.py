"""Checkpoints that are shipped: wanted or not, and what remains of the log."""

import pytest

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.follower import IllegalTruncation
from lockstep.storage.raft.messages import AppendResponse, Install, InstallResponse
from lockstep.storage.raft.progress import SendState
from tests.storage.raft.cores import ME, START_MS, THREE, core, drained, entries, heartbeat, leader, said
from tests.support.cases import each_case


def chunk(index: int, last_term: int, number: int = 0, term: int = 5) -> Install:
    return Install(2, ME, term, index, last_term, number, False, 77)


def held(index: int) -> AppendResponse:
    return AppendResponse(ME, 2, 5, index, index, 0, 0, 77)


def test_wanted_chunks_go_to_the_shell_and_are_answered_by_it() -> None:
    raft = core(terms=[4], term=5)
    raft.step(chunk(9, 5), START_MS + 100)
    ready = drained(raft)
    assert (ready.chunks, ready.messages, raft.leader_id) == ([chunk(9, 5)], (), 2)
    assert raft.deadline_ms == START_MS + 600  # a leader was heard
    raft.chunk_stored(chunk(9, 5))
    raft.chunk_stored(chunk(9, 5, 1), accepted=False)
    raft.chunk_stored(chunk(9, 5, 2, term=4))  # its sender leads no more
    assert said(raft) == [
        InstallResponse(ME, 2, 5, 9, 0, True, 77),
        InstallResponse(ME, 2, 5, 9, 1, False, 77),
    ]
    assert raft.needs_install(9, 5)


def test_what_is_committed_or_there_already_is_not_wanted() -> None:
    raft = core(terms=[4, 4, 4], base=(10, 3), term=5)
    raft.step(chunk(8, 3), START_MS)
    assert (raft.ready().chunks, raft.needs_install(8, 3)) == ((), False)
    raft = core(terms=[4, 4, 4], base=(10, 3), term=5)
    raft.step(chunk(12, 4), START_MS)  # the entry is there: it is verified by that
    assert said(raft) == [held(12)]
    raft.step(heartbeat(commit_index=12), START_MS)
    assert raft.commit_index == 12
    raft.persisted_index = 11
    raft.follower_state.verified_index = 11
    raft.step(chunk(13, 4), START_MS)
    drained(raft)
    raft.on_persisted(13, 4, 0)
    assert held(13) in said(raft)
    assert raft.needs_install(13, 5)


def test_nonsense_is_ignored() -> None:
    raft = core(term=5)
    for bad in (chunk(9, 0), chunk(9, 6)):
        raft.step(bad, START_MS)
    assert (raft.leader_id, raft.ready().chunks) == (-1, ())


def test_installed() -> None:
    raft = core(terms=[2, 2], term=5)
    raft.step(entries((2, 2), [2]), START_MS)
    drained(raft)
    two = Configuration((1, 2))
    raft.on_installed(9, 4, two, START_MS + 10)
    assert (raft.last_index, raft.terms.last_term, raft.commit_index, raft.persisted_index) == (9, 4, 9, 9)
    assert (raft.configuration, raft.truncation_count, raft.follower_state.verified_index) == (two, 1, 9)
    raft.on_persisted(3, 2, 0)  # the completion of what was thrown away
    assert (raft.persisted_index, said(raft)) == (9, [held(9)])
    raft.step(entries((9, 4), [5]), START_MS + 10)
    assert drained(raft).accepted == (10, 10)


def test_installed_without_a_leader() -> None:
    raft = core(terms=[2], term=5)
    raft.on_installed(9, 4, THREE, START_MS)
    assert (raft.follower_state.verified_index, said(raft)) == (9, [])


@each_case(("index", "last_term"), [(10, 3), (8, 2), (12, 4)])
def test_an_install_that_loses_entries_stops_the_process(index: int, last_term: int) -> None:
    raft = core(terms=[4, 4], base=(10, 3), term=5)
    with pytest.raises(IllegalTruncation, match="committed is 10"):
        raft.on_installed(index, last_term, THREE, START_MS)


def test_the_snapshot_sender_gets_the_acks_of_its_chunks() -> None:
    raft = leader()
    answer = InstallResponse(2, ME, 1, 9, 3, True, raft.now_ms)
    raft.step(answer, raft.now_ms)
    assert raft.ready().chunk_acks == ()  # nothing is being shipped
    progress = raft.progress(2)
    assert progress is not None
    progress.begin_install(0)
    raft.step(answer, raft.now_ms)
    assert (raft.ready().chunk_acks, progress.install_ms) == ([answer], raft.now_ms)
    refusal = InstallResponse(2, ME, 1, 9, 4, False, raft.now_ms)
    raft.step(refusal, raft.now_ms)
    ready = raft.ready()
    assert (ready.chunk_acks, ready.installs) == ([refusal], ())  # not at once again
    raft.step(refusal, raft.now_ms)
    assert raft.ready().installs == [2]
    assert progress.state is SendState.INSTALL
