"""Changes of role and term, and the questions that go with them.

Source: Raft paper, section 5.1 and figure 4; the lease rule of Ongaro's thesis, section 6.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft.settings import LONG_AGO_MS
from storage.raft.transitions import Role
from storage.raft.volatile import NOBODY, Following

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def hears_leader(raft: Raft) -> bool:
    """Whether a leader was heard so recently that another one may not be elected yet."""
    return raft.role is Role.LEADER or raft.now_ms - raft.heard_ms < raft.settings.election_timeout_ms


def may_campaign(raft: Raft) -> bool:
    """Whether this member may stand for election."""
    configurations = raft.configurations
    if configurations.current.is_voter(raft.member_id):
        return True
    previous = configurations.previous
    removed = previous is not None and previous.is_voter(raft.member_id)
    return removed and configurations.current_index > raft.commit_index


def restart_timer(raft: Raft) -> None:
    """Wait for one to two election timeouts from now on."""
    timeout_ms = raft.settings.election_timeout_ms
    raft.wait_ms = timeout_ms + raft.draw(timeout_ms)
    raft.election_due_ms = raft.now_ms + raft.wait_ms


def leader_gone(raft: Raft, member: int) -> None:
    """The process that led as `member` is known to have ended, and its lease with it: nobody waits for it.

    The other voters stand one after the other, so that they do not split the votes.
    """
    if raft.role is not Role.FOLLOWER or raft.leader_id != member:
        return
    raft.leader_id = NOBODY
    others = sorted(voter for voter in raft.configurations.current.voters if voter != member)
    heirs = [each for each in others if each > member] + [each for each in others if each < member]
    stand_in_turn(raft, heirs.index(raft.member_id) if raft.member_id in heirs else len(heirs))


def stand_in_turn(raft: Raft, rank: int) -> None:
    """There is no leader, and no lease of one: stand for election after so many others."""
    raft.heard_ms = LONG_AGO_MS
    raft.election_due_ms = min(raft.election_due_ms, raft.now_ms + rank * raft.settings.turn_ms)


def new_term(raft: Raft, term: int) -> None:
    """Enter a later term: no vote, no leader, nothing of what was to be said or was verified before."""
    raft.term = term
    raft.voted_for = NOBODY
    raft.leader_id = NOBODY
    raft.hard_state_wanted = True
    raft.hard_state_flushed = False
    raft.following = Following(raft.commit_index)
    raft.outbox.clear()


def become_follower(raft: Raft, term: int) -> None:
    """Stop leading or standing, in this term or a later one."""
    if raft.role is not Role.FOLLOWER:
        raft.become(Role.FOLLOWER)
        raft.leading = None
        raft.leader_id = NOBODY
        restart_timer(raft)
    if term > raft.term:
        new_term(raft, term)
