"""The checks of a message's term before it is handled (Raft paper, section 5.1)."""

from __future__ import annotations

from lockstep.storage.raft import election, role_changes
from lockstep.storage.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Install,
    InstallResponse,
    Message,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from lockstep.storage.raft.state import RaftState


def admit(raft: RaftState, message: Message) -> bool:
    """Returns whether a message of another term is to be handled; enters a later term where that is due."""
    if message.term < raft.term:
        _reject_older_term(raft, message)
        return False
    if isinstance(message, VoteRequest):
        if role_changes.has_live_leader(raft) and not message.transfer:
            # The lease rule. A PreVote is rejected with our term; a vote request is ignored.
            if message.pre:
                election.respond(raft, message, granted=False, term=raft.term)
            return False
        if message.pre:
            return True
    elif isinstance(message, VoteResponse) and message.pre and message.granted:
        return True
    elif isinstance(message, TimeoutNow):
        return False  # a leader transfers to a member that has been in its term
    elif not isinstance(message, Append | Heartbeat | Install) and not _is_member(raft, message.sender):
        return False  # a response of a removed member is no reason to stop leading
    role_changes.become_follower(raft, message.term)
    return True


def _is_member(raft: RaftState, member: int) -> bool:
    return member in raft.configurations.current.members


def _reject_older_term(raft: RaftState, message: Message) -> None:
    """Responds to an older term: a candidate has to catch up, a leader to step down.

    Without the second a member with a higher term, which follows no older leader, could never rejoin.
    """
    me, to, term = raft.member_id, message.sender, raft.term
    if isinstance(message, VoteRequest):
        election.respond(raft, message, granted=False, term=term)
    elif isinstance(message, Append):
        raft.outbox.append(AppendResponse(me, to, term, -1, message.prev_index, 0, 0, message.sent_ms))
    elif isinstance(message, Heartbeat):
        raft.outbox.append(HeartbeatResponse(me, to, term, 0, message.sent_ms))
    elif isinstance(message, Install):
        raft.outbox.append(
            InstallResponse(me, to, term, message.index, message.chunk, False, message.sent_ms)
        )
