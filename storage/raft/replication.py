"""The leader's side of replication: handling responses, advancing the commit index, heartbeats.

Invariants: only an entry of the leader's own term is committed by counting (Raft paper, section 5.4.2); the
leader's own log counts as far as it is flushed, as every member's does, and it may commit entries before its
own disk has them; a response that is late, duplicated or of a former member changes nothing.
"""

from __future__ import annotations

from lockstep.storage.raft import install, lease, membership, replication_send, transfer
from lockstep.storage.raft.messages import AppendResponse, HeartbeatResponse, InstallResponse
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.quorum import joint_committed_index
from lockstep.storage.raft.role_changes import become_follower
from lockstep.storage.raft.state import LeaderState, RaftState


def tick(raft: RaftState, leader_state: LeaderState) -> None:
    """Sends each heartbeat, times out requests, and checks the quorum."""
    now_ms, settings = raft.now_ms, raft.settings
    if now_ms < leader_state.heartbeat_due_ms:
        return
    leader_state.heartbeat_due_ms = now_ms + settings.heartbeat_ms
    if lease.is_quorum_silent(raft, leader_state):
        become_follower(raft, raft.term)
        return
    if not transfer.expire(raft, leader_state):
        return
    for progress in leader_state.progress.values():
        if progress.expire(now_ms, settings):
            install.begin(raft, progress)
        replication_send.send_heartbeat(raft, progress)


def _on_response(
    raft: RaftState, response: AppendResponse | HeartbeatResponse | InstallResponse
) -> Progress | None:
    """Returns the sender's progress after a response; None where we do not lead or it is no member."""
    progress = raft.leader_state.progress.get(response.sender) if raft.leader_state is not None else None
    if progress is not None and progress.on_response(response.sent_ms, raft.now_ms):
        install.begin(raft, progress)
    return progress


def on_append_response(raft: RaftState, response: AppendResponse) -> None:
    """Handles a match or a rejection of a member."""
    progress = _on_response(raft, response)
    if progress is None:
        return
    if response.match_index < 0:
        guess = raft.terms.last_of_term(response.hint_term, min(response.hint_index, response.prev_index))
        progress.on_rejection(response.prev_index, guess)
    else:
        _on_match(raft, progress, response.match_index)


def on_heartbeat_response(raft: RaftState, response: HeartbeatResponse) -> None:
    """Handles a heartbeat's response; its match makes up for lost responses to requests."""
    progress = _on_response(raft, response)
    if progress is None:
        return
    match_index = progress.match_index
    if response.match_index < match_index and not progress.in_flight:
        # It restarted within this term and has to verify its log again.
        prev_term = raft.terms.term_at(match_index)
        if prev_term is not None and progress.may_send(1):
            replication_send.send_append(raft, progress, match_index, prev_term, match_index)
    else:
        _on_match(raft, progress, response.match_index)


def on_install_response(raft: RaftState, response: InstallResponse) -> None:
    """Handles the response to a snapshot's chunk: stored, or failed."""
    progress = _on_response(raft, response)
    if progress is not None:
        install.on_chunk_ack(raft, progress, response)


def _on_match(raft: RaftState, progress: Progress, match_index: int) -> None:
    leader_state = raft.leader_state
    assert leader_state is not None
    if not 0 <= match_index <= raft.terms.last_index:
        return
    if progress.on_match(match_index, raft.terms.base_index):
        advance_commit(raft, leader_state)
    transfer.send_timeout_now(raft, progress)


def advance_commit(raft: RaftState, leader_state: LeaderState) -> None:
    """Advances the commit index to the highest entry that a majority has flushed."""
    if leader_state.is_only_voter:
        index = raft.persisted_index
    else:
        match = {member: progress.match_index for member, progress in leader_state.progress.items()}
        match[raft.member_id] = raft.persisted_index
        index = joint_committed_index(leader_state.voter_sets, match)
    # Entries of older terms commit only under one of ours (Raft paper, section 5.4.2).
    if index <= raft.commit_index or index < leader_state.no_op_index or leader_state.no_op_index == 0:
        return
    raft.commit_index = index
    leader_state.is_serving = True
    deferred_voters = leader_state.deferred_voters
    deferred_voters.waiting_ms = raft.now_ms
    if deferred_voters.probe_commits_left:
        deferred_voters.on_commit(raft, leader_state.progress)
    if leader_state.change_pending:
        membership.on_commit(raft, leader_state)
