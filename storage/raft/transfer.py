"""Leadership transfer (Raft thesis, section 3.10): bring the target up to date, then send it TimeoutNow.

While that is under way no proposals are taken; after the transfer timeout they are again, and the shell takes
appends once all that was appended before is applied. After the TimeoutNow the target may win at any time
within this term, and its voters do not wait for our lease to end: the lease is dropped for the rest of the
term. Should the target not take over, the leader itself starts an election with the `transfer` flag, because
in a new term it can have a lease again.
"""

from __future__ import annotations

from lockstep.storage.raft import election, membership
from lockstep.storage.raft.messages import TimeoutNow
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.role_changes import become_follower
from lockstep.storage.raft.state import NOBODY, LeaderState, RaftState


def begin(raft: RaftState, leader_state: LeaderState, target: int) -> None:
    """Raises ConfigurationRejected where the target is no other voter, or something else is under way."""
    membership.require_no_pending_change(leader_state)
    if target == raft.member_id or not raft.configurations.current.is_voter(target):
        raise membership.ConfigurationRejected(f"member {target} is no other voter")
    leader_state.transfer_target = target
    leader_state.transfer_due_ms = raft.now_ms + raft.settings.transfer_timeout_ms
    send_timeout_now(raft, leader_state.progress[target])


def send_timeout_now(raft: RaftState, progress: Progress) -> None:
    """Sends TimeoutNow once the target holds everything."""
    leader_state = raft.leader_state
    if leader_state is None or leader_state.transfer_target != progress.member:
        return
    if progress.match_index == raft.terms.last_index:
        leader_state.lease_dropped = True
        raft.outbox.append(TimeoutNow(raft.member_id, progress.member, raft.term))


def expire(raft: RaftState, leader_state: LeaderState) -> bool:
    """Ends a transfer that timed out; returns False where this member has stopped leading because of that."""
    if leader_state.transfer_target == NOBODY or raft.now_ms < leader_state.transfer_due_ms:
        return True
    leader_state.transfer_target = NOBODY
    if not leader_state.lease_dropped:
        leader_state.resumed_index = raft.terms.last_index
        return True
    become_follower(raft, raft.term)
    election.start_election(raft, transfer=True)
    return False
