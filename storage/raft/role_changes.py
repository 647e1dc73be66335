"""Changes of role and term, and the predicates that go with them.

Source: Raft paper, section 5.1 and figure 4; the lease rule of Ongaro's thesis, section 6.4.1.
"""

from __future__ import annotations

from lockstep.storage.raft.settings import LONG_AGO_MS
from lockstep.storage.raft.state import NOBODY, FollowerState, RaftState
from lockstep.storage.raft.transitions import Role


def has_live_leader(raft: RaftState) -> bool:
    """Returns whether a leader sent a message so recently that another one may not be elected yet."""
    return (
        raft.role is Role.LEADER or raft.now_ms - raft.leader_contact_ms < raft.settings.election_timeout_ms
    )


def may_campaign(raft: RaftState) -> bool:
    """Returns whether this member may stand for election."""
    configurations = raft.configurations
    if configurations.current.is_voter(raft.member_id):
        return True
    previous = configurations.previous
    removed = previous is not None and previous.is_voter(raft.member_id)
    return removed and configurations.current_index > raft.commit_index


def on_leader_stopped(raft: RaftState, member: int) -> None:
    """Ends the lease of a leader whose process is known to have ended.

    The other voters stand for election one after the other, so that they do not split the votes.
    """
    if raft.role is not Role.FOLLOWER or raft.leader_id != member:
        return
    raft.leader_id = NOBODY
    others = sorted(voter for voter in raft.configurations.current.voters if voter != member)
    successors = [each for each in others if each > member] + [each for each in others if each < member]
    campaign_after(
        raft, successors.index(raft.member_id) if raft.member_id in successors else len(successors)
    )


def campaign_after(raft: RaftState, rank: int) -> None:
    """Stands for election after `rank` others, where there is no leader and no lease of one."""
    raft.leader_contact_ms = LONG_AGO_MS
    raft.election_due_ms = min(raft.election_due_ms, raft.now_ms + rank * raft.settings.election_stagger_ms)


def new_term(raft: RaftState, term: int) -> None:
    """Enters a later term: forgets the vote, the leader, unsent messages and what was verified."""
    raft.term = term
    raft.voted_for = NOBODY
    raft.leader_id = NOBODY
    raft.hard_state_pending = True
    raft.hard_state_flushed = False
    raft.follower_state = FollowerState(raft.commit_index)
    raft.outbox.clear()


def become_follower(raft: RaftState, term: int) -> None:
    """Stops leading or standing for election, in this term or a later one."""
    if raft.role is not Role.FOLLOWER:
        raft.become(Role.FOLLOWER)
        raft.leader_state = None
        raft.leader_id = NOBODY
        raft.restart_timer()
    if term > raft.term:
        new_term(raft, term)
