"""The follower's side of replication: accept entries, acknowledge what is flushed, follow the commit index.

Invariants: entries are truncated only where terms differ at one index, never where a request ends, and
never at or below the commit index; what is acknowledged is both verified against this term's leader and
flushed here, and the commit index follows min(leader's, verified, flushed). Source: Raft paper, figure 2.
"""

from __future__ import annotations

from lockstep.storage.raft.messages import Append, AppendResponse, Heartbeat, HeartbeatResponse, Install
from lockstep.storage.raft.role_changes import become_follower
from lockstep.storage.raft.state import NOBODY, RaftState
from lockstep.storage.raft.transitions import Role


class IllegalTruncation(Exception):
    """Committed entries would have to be forgotten: the process must stop, something is broken."""


def accept_leader(raft: RaftState, message: Append | Heartbeat | Install) -> bool:
    """Records a message of this term's leader; returns False where the sender cannot be that leader."""
    if raft.role is not Role.FOLLOWER:
        if raft.role is Role.LEADER:
            return False
        become_follower(raft, raft.term)
    if raft.leader_id != message.sender:
        if raft.leader_id != NOBODY:
            return False
        raft.leader_id = message.sender
    raft.leader_contact_ms = raft.now_ms
    raft.election_due_ms = raft.now_ms + raft.wait_ms
    follower_state = raft.follower_state
    follower_state.sent_ms = max(follower_state.sent_ms, message.sent_ms)
    return True


def on_append(raft: RaftState, append: Append) -> None:
    """Checks the previous entry, truncates where the logs differ, appends new entries, responds once
    flushed."""
    if not _well_formed(append) or not accept_leader(raft, append):
        return
    terms, follower_state = raft.terms, raft.follower_state
    prev_index, last_index = append.prev_index, append.last_index
    # Below our commit index the logs are equal, and the checkpoint may have forgotten the term.
    if prev_index >= raft.commit_index and terms.term_at(prev_index) != append.prev_term:
        _reject(raft, append)
        return
    if last_index > prev_index:
        new = _first_difference(raft, append)
        if new <= last_index:
            _append_entries(raft, append, new)
    follower_state.verified_index = max(follower_state.verified_index, last_index)
    follower_state.leader_commit = max(follower_state.leader_commit, append.commit_index)
    acknowledge(raft, prev_index, last_index)
    follow_commit(raft)


def _well_formed(append: Append) -> bool:
    """Returns whether the fields agree with each other: the functions below rely on that."""
    prev_index, term, last_index = append.prev_index, append.prev_term, append.last_index
    if not 0 <= prev_index <= last_index or append.commit_index < 0:
        return False
    expected = prev_index + 1
    for start, run_term in append.runs:
        if not expected <= start <= last_index or run_term < term:
            return False
        if expected == prev_index + 1 and start != expected:
            return False
        expected, term = start + 1, run_term
    if bool(append.runs) != (last_index > prev_index) or term > append.term:
        return False
    if len(append.sizes) != last_index - prev_index:
        return False
    before = prev_index
    for index, _ in append.configurations:
        if not before < index <= last_index:
            return False
        before = index
    return True


def _first_difference(raft: RaftState, append: Append) -> int:
    """Returns the first entry that is missing here or has another term; one beyond the last if none is."""
    terms, last_index, runs = raft.terms, append.last_index, append.runs
    if append.prev_index == terms.last_index:
        return append.prev_index + 1
    for position, (start, term) in enumerate(runs):
        end = runs[position + 1][0] - 1 if position + 1 < len(runs) else last_index
        for own_start, own_term in terms.runs_between(
            max(start, terms.base_index + 1), min(end, terms.last_index)
        ):
            if own_term != term:
                return own_start
        if end > terms.last_index:
            return max(start, terms.last_index + 1)
    return last_index + 1


def _append_entries(raft: RaftState, append: Append, new: int) -> None:
    """Adds the entries from `new` on to the term index; the shell writes them."""
    terms, last_index, sizes = raft.terms, append.last_index, append.sizes
    if new <= terms.last_index:
        _truncate(raft, new - 1)
    runs, skipped = append.runs, append.prev_index + 1
    for position, (start, term) in enumerate(runs):
        end = runs[position + 1][0] - 1 if position + 1 < len(runs) else last_index
        for index in range(max(start, new), end + 1):
            terms.append(index, term, sizes[index - skipped])
    for index, configuration in append.configurations:
        if index >= new:
            raft.configurations.append(index, configuration)
    raft.accepted = (new, last_index)


def _truncate(raft: RaftState, last_index: int) -> None:
    """Removes the entries after `last_index`. Raises IllegalTruncation where one of them is committed."""
    if last_index < raft.commit_index:
        raise IllegalTruncation(
            f"member {raft.member_id} would truncate after {last_index}, committed is {raft.commit_index}"
        )
    raft.terms.truncate(last_index)
    raft.configurations.truncate(last_index)
    raft.truncation_count += 1
    raft.persisted_index = min(raft.persisted_index, last_index)
    raft.truncate_after = last_index


def _reject(raft: RaftState, append: Append) -> None:
    """Rejects a request whose previous entry does not match; the hint names the last that may still match."""
    terms = raft.terms
    hint_index = max(raft.commit_index, terms.last_of_term(append.prev_term, append.prev_index))
    hint_term = terms.term_at(hint_index) or 0
    raft.outbox.append(
        AppendResponse(
            raft.member_id,
            append.sender,
            raft.term,
            -1,
            append.prev_index,
            hint_index,
            hint_term,
            append.sent_ms,
        )
    )


def acknowledge(raft: RaftState, prev_index: int, last_index: int) -> None:
    """Responds to a request now if its entries are flushed, else after the flushes to come."""
    follower_state = raft.follower_state
    if raft.persisted_index >= last_index:
        _respond(raft, prev_index)
    elif last_index >= follower_state.pending_ack_index:
        follower_state.pending_ack_index, follower_state.pending_ack_prev = last_index, prev_index


def on_flushed(raft: RaftState) -> None:
    """Responds to the requests that waited for this flush."""
    follower_state = raft.follower_state
    if follower_state.pending_ack_index != NOBODY and raft.leader_id != NOBODY:
        _respond(raft, follower_state.pending_ack_prev)
        if raft.persisted_index >= follower_state.pending_ack_index:
            follower_state.pending_ack_index = NOBODY
    follow_commit(raft)


def _respond(raft: RaftState, prev_index: int) -> None:
    match_index = min(raft.follower_state.verified_index, raft.persisted_index)
    raft.outbox.append(
        AppendResponse(
            raft.member_id,
            raft.leader_id,
            raft.term,
            match_index,
            prev_index,
            0,
            0,
            raft.follower_state.sent_ms,
        )
    )


def follow_commit(raft: RaftState) -> None:
    """Advances the commit index to the leader's, as far as the log here is verified and flushed."""
    follower_state = raft.follower_state
    commit_index = min(follower_state.leader_commit, follower_state.verified_index, raft.persisted_index)
    if commit_index > raft.commit_index:
        raft.commit_index = commit_index


def on_heartbeat(raft: RaftState, heartbeat: Heartbeat) -> None:
    """Responds with the last entry that is verified to be the leader's and flushed."""
    if not accept_leader(raft, heartbeat):
        return
    follower_state = raft.follower_state
    follower_state.leader_commit = max(follower_state.leader_commit, heartbeat.commit_index)
    follow_commit(raft)
    match_index = min(follower_state.verified_index, raft.persisted_index)
    raft.outbox.append(
        HeartbeatResponse(raft.member_id, heartbeat.sender, raft.term, match_index, follower_state.sent_ms)
    )
