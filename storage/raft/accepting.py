"""The follower's side of replication: accept entries, acknowledge what is flushed, follow the commit index.

Invariants: entries are cut only where terms differ at one index, never because a request ends earlier, and
never at or below the commit index; what is acknowledged is both verified against this term's leader and
flushed here, and the commit index follows min(leader's, verified, flushed). Source: Raft paper, figure 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft.messages import Append, AppendResponse, Heartbeat, HeartbeatResponse, Install
from storage.raft.roles import become_follower
from storage.raft.transitions import Role
from storage.raft.volatile import NOBODY

if TYPE_CHECKING:
    from storage.raft.raft import Raft


class IllegalTruncation(Exception):
    """Committed entries would have to be forgotten: the process must stop, something is broken."""


def hear(raft: Raft, message: Append | Heartbeat | Install) -> bool:
    """A message of this term's leader has come; False where it cannot be that."""
    if raft.role is not Role.FOLLOWER:
        if raft.role is Role.LEADER:
            return False
        become_follower(raft, raft.term)
    if raft.leader_id != message.sender:
        if raft.leader_id != NOBODY:
            return False
        raft.leader_id = message.sender
    raft.heard_ms = raft.now_ms
    raft.election_due_ms = raft.now_ms + raft.wait_ms
    following = raft.following
    following.sent_ms = max(following.sent_ms, message.sent_ms)
    return True


def on_append(raft: Raft, append: Append) -> None:
    """Check the entry before, cut where the logs differ, take what is new, and answer once it is flushed."""
    if not _well_formed(append) or not hear(raft, append):
        return
    terms, following = raft.terms, raft.following
    prev_index, last_index = append.prev_index, append.last_index
    # Below our commit index the logs are equal, and the checkpoint may have forgotten the term.
    if prev_index >= raft.commit_index and terms.term_at(prev_index) != append.prev_term:
        _reject(raft, append)
        return
    if last_index > prev_index:
        new = _first_difference(raft, append)
        if new <= last_index:
            _take(raft, append, new)
    following.verified_index = max(following.verified_index, last_index)
    following.leader_commit = max(following.leader_commit, append.commit_index)
    acknowledge(raft, prev_index, last_index)
    follow_commit(raft)


def _well_formed(append: Append) -> bool:
    """Whether the parts agree with each other, so that nothing below has to doubt them."""
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


def _first_difference(raft: Raft, append: Append) -> int:
    """The first of the entries that we lack or have with another term; one beyond them if there is none."""
    terms, last_index, runs = raft.terms, append.last_index, append.runs
    if append.prev_index == terms.last_index:
        return append.prev_index + 1
    for place, (start, term) in enumerate(runs):
        end = runs[place + 1][0] - 1 if place + 1 < len(runs) else last_index
        for own_start, own_term in terms.runs_between(
            max(start, terms.base_index + 1), min(end, terms.last_index)
        ):
            if own_term != term:
                return own_start
        if end > terms.last_index:
            return max(start, terms.last_index + 1)
    return last_index + 1


def _take(raft: Raft, append: Append, new: int) -> None:
    """Make the entries from `new` on ours; the shell writes them."""
    terms, last_index, sizes = raft.terms, append.last_index, append.sizes
    if new <= terms.last_index:
        _cut(raft, new - 1)
    runs, skipped = append.runs, append.prev_index + 1
    for place, (start, term) in enumerate(runs):
        end = runs[place + 1][0] - 1 if place + 1 < len(runs) else last_index
        for index in range(max(start, new), end + 1):
            terms.append(index, term, sizes[index - skipped])
    for index, configuration in append.configurations:
        if index >= new:
            raft.configurations.append(index, configuration)
    raft.accepted = (new, last_index)


def _cut(raft: Raft, last_index: int) -> None:
    """Forget our entries after `last_index`. Raises IllegalTruncation where one of them is committed."""
    if last_index < raft.commit_index:
        raise IllegalTruncation(
            f"member {raft.member_id} would cut after {last_index}, committed is {raft.commit_index}"
        )
    raft.terms.truncate(last_index)
    raft.configurations.truncate(last_index)
    raft.cuts += 1
    raft.persisted_index = min(raft.persisted_index, last_index)
    raft.truncate_after = last_index


def _reject(raft: Raft, append: Append) -> None:
    """No entry like the one before theirs; the hint names our last that may still match."""
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


def acknowledge(raft: Raft, prev_index: int, last_index: int) -> None:
    """Answer a request now if its entries are flushed, else with the flushes to come."""
    following = raft.following
    if raft.persisted_index >= last_index:
        _respond(raft, prev_index)
    elif last_index >= following.owed_index:
        following.owed_index, following.owed_prev = last_index, prev_index


def flushed(raft: Raft) -> None:
    """More of our log is on disk: answer what waited for it."""
    following = raft.following
    if following.owed_index != NOBODY and raft.leader_id != NOBODY:
        _respond(raft, following.owed_prev)
        if raft.persisted_index >= following.owed_index:
            following.owed_index = NOBODY
    follow_commit(raft)


def _respond(raft: Raft, prev_index: int) -> None:
    match_index = min(raft.following.verified_index, raft.persisted_index)
    raft.outbox.append(
        AppendResponse(
            raft.member_id, raft.leader_id, raft.term, match_index, prev_index, 0, 0, raft.following.sent_ms
        )
    )


def follow_commit(raft: Raft) -> None:
    """The commit index is the leader's, as far as our log is verified and flushed; it never goes back."""
    following = raft.following
    commit_index = min(following.leader_commit, following.verified_index, raft.persisted_index)
    if commit_index > raft.commit_index:
        raft.commit_index = commit_index


def on_heartbeat(raft: Raft, heartbeat: Heartbeat) -> None:
    """Still led; say what of our log is known to be the leader's."""
    if not hear(raft, heartbeat):
        return
    following = raft.following
    following.leader_commit = max(following.leader_commit, heartbeat.commit_index)
    follow_commit(raft)
    match_index = min(following.verified_index, raft.persisted_index)
    raft.outbox.append(
        HeartbeatResponse(raft.member_id, heartbeat.sender, raft.term, match_index, following.sent_ms)
    )
