"""CheckQuorum and the leader's lease: whether a majority responds, and since when at the latest.

A member that responds in this term elects no other leader for an election timeout from when it received the
message, hence at least from when the leader sent it. The quorum-th newest of those times, plus
the timeout less the stated drift of both clocks, is how long no other leader can be elected. Source: Raft
thesis, sections 6.2 and 6.4.1; etcd's rule that a lease needs CheckQuorum.
"""

from __future__ import annotations

from lockstep.storage.raft.quorum import joint_committed_index
from lockstep.storage.raft.state import LeaderState, RaftState


def contact_ms(raft: RaftState, leader_state: LeaderState, now_ms: int) -> int:
    """Returns since when at the latest a majority of each voter set has known this leader; it counts as
    now."""
    contacts = {member: progress.contact_ms for member, progress in leader_state.progress.items()}
    contacts[raft.member_id] = now_ms
    return joint_committed_index(leader_state.voter_sets, contacts)


def is_quorum_silent(raft: RaftState, leader_state: LeaderState) -> bool:
    """CheckQuorum, with each heartbeat: no majority has sent a newer response for an election timeout.

    Heartbeats are counted, not time: a leader that was paused itself has responses that it has not read.
    """
    newest_ms = contact_ms(raft, leader_state, raft.now_ms)
    if newest_ms > leader_state.contact_ms:
        leader_state.contact_ms = newest_ms
        leader_state.silent_heartbeats = 0
        return False
    leader_state.silent_heartbeats += 1
    return leader_state.silent_heartbeats * raft.settings.heartbeat_ms >= raft.settings.election_timeout_ms


def has_lease(raft: RaftState, leader_state: LeaderState, now_ms: int) -> bool:
    """Returns whether no other member can have been elected by now: no newer entry is committed elsewhere."""
    if not leader_state.is_serving or leader_state.lease_dropped:
        return False
    return (
        leader_state.is_only_voter or now_ms < contact_ms(raft, leader_state, now_ms) + raft.settings.lease_ms
    )
