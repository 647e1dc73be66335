"""Elections: who may stand, who is voted for, who has won.

PreVote (Ongaro's thesis, section 9.6): ask whether a majority would vote before raising the term, so that
whoever was cut off does not disrupt. Lease rule (section 6.4.1): whoever heard a leader within an election
timeout neither votes nor lets itself be moved to another term, unless that leader hands over. Votes count
once they are on disk, our own included. A member that the newest, still uncommitted configuration removes
may stand: it may be the only one with the entry that removes it (section 4.2.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft.messages import TimeoutNow, VoteRequest, VoteResponse
from storage.raft.quorum import vote_won
from storage.raft.roles import (
    become_follower,
    hears_leader,
    may_campaign,
    new_term,
    restart_timer,
    stand_in_turn,
)
from storage.raft.transitions import Role
from storage.raft.volatile import NOBODY, Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def ask(raft: Raft) -> None:
    """PreVote: would a majority vote for us? The only voter asks itself."""
    raft.become(Role.PRE_CANDIDATE)
    raft.leader_id = NOBODY
    raft.granted = {raft.member_id: True}
    restart_timer(raft)
    _request_votes(raft, pre=True, term=raft.term + 1, transfer=False)
    _count(raft)


def stand(raft: Raft, transfer: bool) -> None:
    """Stand for election in the next term; our vote counts once it is on disk, no request leaves before."""
    raft.become(Role.CANDIDATE)
    new_term(raft, raft.term + 1)
    raft.voted_for = raft.member_id
    raft.granted = {}
    restart_timer(raft)
    _request_votes(raft, pre=False, term=raft.term, transfer=transfer)


def _request_votes(raft: Raft, pre: bool, term: int, transfer: bool) -> None:
    terms = raft.terms
    voters = {voter for voters in raft.configurations.current.voter_sets() for voter in voters}
    for voter in sorted(voters - {raft.member_id}):
        raft.outbox.append(
            VoteRequest(raft.member_id, voter, term, pre, terms.last_index, terms.last_term, transfer)
        )


def own_vote_flushed(raft: Raft) -> None:
    """The hard state that our vote rests on is on disk."""
    if raft.role is Role.CANDIDATE:
        raft.granted[raft.member_id] = True
        _count(raft)


def on_vote_request(raft: Raft, request: VoteRequest) -> None:
    """Vote, once per term, for a log that is not behind ours.

    The lease rule holds in our own term, too: an answer may have moved us here while we hear a leader.
    """
    terms = raft.terms
    whole = (request.last_term, request.last_index) >= (terms.last_term, terms.last_index)
    asked_early = raft.role is Role.PRE_CANDIDATE and raft.granted.get(request.sender) is False
    if not whole and (raft.role is Role.FOLLOWER or asked_early) and not hears_leader(raft):
        # It cannot win here, and we may; who still heard a leader when we asked may hear none now.
        stand_in_turn(raft, 0)
    if request.pre:
        granted = whole and request.term > raft.term
        answer(raft, request, granted, request.term if granted else raft.term)
        return
    free = raft.voted_for == NOBODY and raft.leader_id == NOBODY
    free = free and (request.transfer or not hears_leader(raft))
    granted = whole and (free or raft.voted_for == request.sender)
    if granted and free:
        become_follower(raft, raft.term)
        raft.voted_for = request.sender
        raft.hard_state_wanted = True
        raft.hard_state_flushed = False
        restart_timer(raft)
    answer(raft, request, granted, raft.term)


def answer(raft: Raft, request: VoteRequest, granted: bool, term: int) -> None:
    """Granted or refused; leaves once the hard state is on disk, as everything does."""
    raft.outbox.append(VoteResponse(raft.member_id, request.sender, term, request.pre, granted))


def on_vote_response(raft: Raft, response: VoteResponse) -> None:
    """Count an answer to the question that is open now, from one whose vote counts."""
    asked = Role.PRE_CANDIDATE if response.pre else Role.CANDIDATE
    term = raft.term + 1 if response.pre and response.granted else raft.term
    if raft.role is not asked or response.term != term:
        return
    if raft.configurations.current.is_voter(response.sender):
        raft.granted.setdefault(response.sender, response.granted)
        _count(raft)


def _count(raft: Raft) -> None:
    voter_sets = raft.configurations.current.voter_sets()
    granted = raft.granted
    if vote_won(voter_sets, granted):
        if raft.role is Role.PRE_CANDIDATE:
            stand(raft, transfer=False)
        else:
            _lead(raft)
    elif not vote_won(voter_sets, {voter: granted.get(voter, True) for each in voter_sets for voter in each}):
        become_follower(raft, raft.term)


def _lead(raft: Raft) -> None:
    raft.become(Role.LEADER)
    raft.leader_id = raft.member_id
    raft.leading = Leadership(raft.now_ms + raft.settings.heartbeat_ms)
    raft.leading.adopt(raft.configurations.current, raft.member_id, raft.terms.last_index + 1)


def on_timeout_now(raft: Raft, _message: TimeoutNow) -> None:
    """This term's leader hands over to us: no PreVote, which those who hear that leader would refuse."""
    if raft.role is Role.FOLLOWER and may_campaign(raft):
        stand(raft, transfer=True)
