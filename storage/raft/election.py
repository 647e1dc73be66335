"""Elections: PreVote, votes, and the count of both.

PreVote (Ongaro's thesis, section 9.6): a candidate first requests whether a majority would vote, without a
higher term, so that a member that was partitioned does not disrupt. Lease rule (section 6.4.1): a member
with a message of a leader within an election timeout neither votes nor enters another term, unless that
leader transfers. Votes count once they are on disk, our own included. A member that the newest, still
uncommitted configuration removes may stand: it may be the only one with that entry (section 4.2.2).
"""

from __future__ import annotations

from lockstep.storage.raft.messages import TimeoutNow, VoteRequest, VoteResponse
from lockstep.storage.raft.quorum import vote_won
from lockstep.storage.raft.role_changes import (
    become_follower,
    campaign_after,
    has_live_leader,
    may_campaign,
    new_term,
)
from lockstep.storage.raft.state import NOBODY, LeaderState, RaftState
from lockstep.storage.raft.transitions import Role


def start_pre_vote(raft: RaftState) -> None:
    """Requests PreVotes of all voters; the only voter grants its own."""
    raft.become(Role.PRE_CANDIDATE)
    raft.leader_id = NOBODY
    raft.granted = {raft.member_id: True}
    raft.restart_timer()
    _request_votes(raft, pre=True, term=raft.term + 1, transfer=False)
    _count(raft)


def start_election(raft: RaftState, transfer: bool) -> None:
    """Stands for election in the next term; the own vote counts, and requests leave, once it is on disk."""
    raft.become(Role.CANDIDATE)
    new_term(raft, raft.term + 1)
    raft.voted_for = raft.member_id
    raft.granted = {}
    raft.restart_timer()
    _request_votes(raft, pre=False, term=raft.term, transfer=transfer)


def _request_votes(raft: RaftState, pre: bool, term: int, transfer: bool) -> None:
    terms = raft.terms
    voters = {voter for voters in raft.configurations.current.voter_sets() for voter in voters}
    for voter in sorted(voters - {raft.member_id}):
        raft.outbox.append(
            VoteRequest(raft.member_id, voter, term, pre, terms.last_index, terms.last_term, transfer)
        )


def on_own_vote_flushed(raft: RaftState) -> None:
    """Counts the own vote, whose hard state is on disk."""
    if raft.role is Role.CANDIDATE:
        raft.granted[raft.member_id] = True
        _count(raft)


def on_vote_request(raft: RaftState, request: VoteRequest) -> None:
    """Votes, once per term, for a log that is at least as up-to-date as ours.

    The lease rule holds in our own term, too: a response may have moved us here while a leader lives.
    """
    terms = raft.terms
    up_to_date = (request.last_term, request.last_index) >= (terms.last_term, terms.last_index)
    was_denied = raft.role is Role.PRE_CANDIDATE and raft.granted.get(request.sender) is False
    if not up_to_date and (raft.role is Role.FOLLOWER or was_denied) and not has_live_leader(raft):
        # It cannot win here, and we may; a voter that denied us because of its leader may grant now.
        campaign_after(raft, 0)
    if request.pre:
        granted = up_to_date and request.term > raft.term
        respond(raft, request, granted, request.term if granted else raft.term)
        return
    can_vote = raft.voted_for == NOBODY and raft.leader_id == NOBODY
    can_vote = can_vote and (request.transfer or not has_live_leader(raft))
    granted = up_to_date and (can_vote or raft.voted_for == request.sender)
    if granted and can_vote:
        become_follower(raft, raft.term)
        raft.voted_for = request.sender
        raft.hard_state_pending = True
        raft.hard_state_flushed = False
        raft.restart_timer()
    respond(raft, request, granted, raft.term)


def respond(raft: RaftState, request: VoteRequest, granted: bool, term: int) -> None:
    """Responds to a vote request; the message leaves once the hard state is on disk, as all do."""
    raft.outbox.append(VoteResponse(raft.member_id, request.sender, term, request.pre, granted))


def on_vote_response(raft: RaftState, response: VoteResponse) -> None:
    """Counts a response to the current election's requests, from a voter."""
    role = Role.PRE_CANDIDATE if response.pre else Role.CANDIDATE
    term = raft.term + 1 if response.pre and response.granted else raft.term
    if raft.role is not role or response.term != term:
        return
    if raft.configurations.current.is_voter(response.sender):
        raft.granted.setdefault(response.sender, response.granted)
        _count(raft)


def _count(raft: RaftState) -> None:
    voter_sets = raft.configurations.current.voter_sets()
    granted = raft.granted
    if vote_won(voter_sets, granted):
        if raft.role is Role.PRE_CANDIDATE:
            start_election(raft, transfer=False)
        else:
            _become_leader(raft)
    elif not vote_won(voter_sets, {voter: granted.get(voter, True) for each in voter_sets for voter in each}):
        become_follower(raft, raft.term)


def _become_leader(raft: RaftState) -> None:
    raft.become(Role.LEADER)
    raft.leader_id = raft.member_id
    raft.leader_state = LeaderState(raft.now_ms + raft.settings.heartbeat_ms)
    raft.leader_state.adopt(raft.configurations.current, raft.member_id, raft.terms.last_index + 1)


def on_timeout_now(raft: RaftState, _message: TimeoutNow) -> None:
    """Stands for election by the leader's transfer: without PreVote, which its followers would deny."""
    if raft.role is Role.FOLLOWER and may_campaign(raft):
        start_election(raft, transfer=True)
