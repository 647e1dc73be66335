"""The leader's side of replication: what answers mean, what is committed, what a heartbeat checks.

Invariants: only an entry of the leader's own term is committed by counting (Raft paper, section 5.4.2); the
leader's own log counts as far as it is flushed, like everyone's, and it may commit what its own disk lags
behind with; an answer that is late, doubled or of a former member changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft import install, lease, membership, sending, transfer
from storage.raft.messages import AppendResponse, HeartbeatResponse, InstallResponse
from storage.raft.progress import Progress
from storage.raft.quorum import joint_committed_index
from storage.raft.roles import become_follower
from storage.raft.volatile import Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def tick(raft: Raft, leading: Leadership) -> None:
    """With each heartbeat: send it, give up what waits for too long, and see whether anybody is listening."""
    now_ms, settings = raft.now_ms, raft.settings
    if now_ms < leading.heartbeat_due_ms:
        return
    leading.heartbeat_due_ms = now_ms + settings.heartbeat_ms
    if lease.quorum_is_silent(raft, leading):
        become_follower(raft, raft.term)
        return
    if not transfer.expire(raft, leading):
        return
    for progress in leading.progress.values():
        if progress.expire(now_ms, settings):
            install.begin(raft, progress)
        sending.send_heartbeat(raft, progress)


def _heard(raft: Raft, response: AppendResponse | HeartbeatResponse | InstallResponse) -> Progress | None:
    """The sender's progress, now known to listen; None where we do not lead or it is no member."""
    progress = raft.leading.progress.get(response.sender) if raft.leading is not None else None
    if progress is not None and progress.heard(response.sent_ms, raft.now_ms):
        install.begin(raft, progress)
    return progress


def on_append_response(raft: Raft, response: AppendResponse) -> None:
    """A member holds our log up to a match, or has no such entry as ours."""
    progress = _heard(raft, response)
    if progress is None:
        return
    if response.match_index < 0:
        guess = raft.terms.last_of_term(response.hint_term, min(response.hint_index, response.prev_index))
        progress.rejected(response.prev_index, guess)
    else:
        _matched(raft, progress, response.match_index)


def on_heartbeat_response(raft: Raft, response: HeartbeatResponse) -> None:
    """A member listens; its match makes up for answers to requests that were lost."""
    progress = _heard(raft, response)
    if progress is None:
        return
    match_index = progress.match_index
    if response.match_index < match_index and not progress.in_flight:
        # It restarted within this term and no longer knows what it has verified: let it verify again.
        prev_term = raft.terms.term_at(match_index)
        if prev_term is not None and progress.may_send(1):
            sending.send_append(raft, progress, match_index, prev_term, match_index)
    else:
        _matched(raft, progress, response.match_index)


def on_install_response(raft: Raft, response: InstallResponse) -> None:
    """For the shipping side: a chunk arrived, or the shipment failed."""
    progress = _heard(raft, response)
    if progress is not None:
        install.acknowledged(raft, progress, response)


def _matched(raft: Raft, progress: Progress, match_index: int) -> None:
    leading = raft.leading
    assert leading is not None
    if not 0 <= match_index <= raft.terms.last_index:
        return
    if progress.matched(match_index, raft.terms.base_index):
        advance_commit(raft, leading)
    transfer.proceed(raft, progress)


def advance_commit(raft: Raft, leading: Leadership) -> None:
    """Count who has flushed what."""
    if leading.alone:
        index = raft.persisted_index
    else:
        match = {member: progress.match_index for member, progress in leading.progress.items()}
        match[raft.member_id] = raft.persisted_index
        index = joint_committed_index(leading.voter_sets, match)
    # Entries of older terms commit only under one of ours (Raft paper, section 5.4.2).
    if index <= raft.commit_index or index < leading.no_op_index or leading.no_op_index == 0:
        return
    raft.commit_index = index
    leading.serving = True
    spares = leading.spares
    spares.waiting_ms = raft.now_ms
    if spares.race_left:
        spares.committed(raft, leading.progress)
    if leading.unsettled:
        membership.settle(raft, leading)
