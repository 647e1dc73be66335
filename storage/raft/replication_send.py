"""The leader's requests: entries in the LogStore paper's two stages or a deeper pipeline, probes, heartbeats.

A request goes as soon as there is something to send and room in flight; the leader's own disk is not waited
for. Requests are capped in bytes. A member that is sent nothing else for a moment is sent the commit index.
"""

from __future__ import annotations

from lockstep.storage.raft import deferred_voters, install
from lockstep.storage.raft.messages import Append, Heartbeat
from lockstep.storage.raft.progress import Progress, SendState
from lockstep.storage.raft.settings import NEVER_MS
from lockstep.storage.raft.state import LeaderState, RaftState

DOUBTFUL_TIMEOUTS = 2
"""After this many consecutive timeouts the leader probes a member's match before it sends entries again."""


def lowest_active_match(leader_state: LeaderState, kept_index: int) -> int | None:
    """See `Raft.lowest_active_match`. A member is active where the leader sends it entries."""
    matches = [
        each.match_index
        for each in leader_state.progress.values()
        if each.state is not SendState.INSTALL
        and each.paused_ms is None
        and each.timeouts < DOUBTFUL_TIMEOUTS
        and each.match_index >= kept_index
    ]
    return min(matches, default=None)


def send(raft: RaftState, leader_state: LeaderState) -> None:
    """Sends all that may go now: entries (later to deferred voters), or else a new commit index.

    Under load the next entries carry the commit index: that saves a message and its response.
    """
    last_index, commit_index = raft.terms.last_index, raft.commit_index
    depth, wait_ms = raft.settings.pipeline_depth, raft.settings.commit_push_ms
    is_due, is_pending = raft.now_ms >= leader_state.push_due_ms or not wait_ms, False
    deferred = deferred_voters.deferred_now(raft, leader_state)
    for progress in leader_state.progress.values():
        if (
            progress.next_index <= last_index
            and progress.member in deferred
            and deferred_voters.should_delay(raft, leader_state.deferred_voters, progress)
        ):
            continue  # what it is sent later carries the commit along
        while progress.next_index <= last_index and progress.may_send(depth):
            _send_next(raft, leader_state, progress)
        if commit_index > progress.commit_sent and not progress.in_flight:
            known = min(progress.match_index, commit_index)
            if known > progress.commit_sent and is_due:
                send_heartbeat(raft, progress)
            elif known > progress.commit_sent:
                is_pending = True
    if not is_pending:
        leader_state.push_due_ms = NEVER_MS
    elif leader_state.push_due_ms == NEVER_MS:
        leader_state.push_due_ms = raft.now_ms + wait_ms


def _send_next(raft: RaftState, leader_state: LeaderState, progress: Progress) -> None:
    """Sends the entries from the member's next index on, a probe where that is a guess, or a snapshot."""
    next_index = progress.next_index
    prev_term = raft.terms.term_at(next_index - 1)
    if prev_term is None:
        install.begin(raft, progress)
        return
    last_index = next_index - 1
    # A guess is not worth a megabyte, nor is a member that does not respond.
    known = next_index == progress.match_index + 1 or next_index >= leader_state.no_op_index
    if known and progress.timeouts < DOUBTFUL_TIMEOUTS:
        last_index = raft.terms.last_within(next_index, raft.settings.max_append_bytes)
    send_append(raft, progress, next_index - 1, prev_term, last_index)


def send_append(
    raft: RaftState, progress: Progress, prev_index: int, prev_term: int, last_index: int
) -> None:
    """Sends one request: the entries after `prev_index` up to `last_index`, or none."""
    progress.on_sent(last_index, raft.now_ms)
    progress.commit_sent = max(progress.commit_sent, min(last_index, raft.commit_index))
    raft.outbox.append(
        Append(
            raft.member_id,
            progress.member,
            raft.term,
            prev_index,
            prev_term,
            raft.terms.runs_between(prev_index + 1, last_index),
            last_index,
            raft.configurations.items_between(prev_index + 1, last_index),
            raft.commit_index,
            raft.now_ms,
        )
    )


def send_heartbeat(raft: RaftState, progress: Progress) -> None:
    """Sends a heartbeat with the commit index, as far as the member is known to hold the entries."""
    commit_index = min(progress.match_index, raft.commit_index)
    progress.commit_sent = max(progress.commit_sent, commit_index)
    raft.outbox.append(Heartbeat(raft.member_id, progress.member, raft.term, commit_index, raft.now_ms))
