"""What a message of another term does before, or instead of, what it says (Raft paper, section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft import election, roles
from storage.raft.messages import (
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

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def admit(raft: Raft, message: Message) -> bool:
    """Whether a message of another term is to be handled; enters a later term where that is due."""
    if message.term < raft.term:
        _answer_older(raft, message)
        return False
    if isinstance(message, VoteRequest):
        if roles.hears_leader(raft) and not message.transfer:
            # The lease rule. An asker is told our term; whoever stands is not even heard.
            if message.pre:
                election.answer(raft, message, granted=False, term=raft.term)
            return False
        if message.pre:
            return True
    elif isinstance(message, VoteResponse) and message.pre and message.granted:
        return True
    elif isinstance(message, TimeoutNow):
        return False  # whom a leader hands over to has been in its term
    elif not isinstance(message, Append | Heartbeat | Install) and not _is_member(raft, message.sender):
        return False  # an answer from one that was removed is no reason to stop leading
    roles.become_follower(raft, message.term)
    return True


def _is_member(raft: Raft, member: int) -> bool:
    return member in raft.configurations.current.members


def _answer_older(raft: Raft, message: Message) -> None:
    """Tell whoever is behind: a candidate that must catch up, a leader that must step down.

    Without the second a member with a higher term, which follows nobody older, could never rejoin.
    """
    me, to, term = raft.member_id, message.sender, raft.term
    if isinstance(message, VoteRequest):
        election.answer(raft, message, granted=False, term=term)
    elif isinstance(message, Append):
        raft.outbox.append(AppendResponse(me, to, term, -1, message.prev_index, 0, 0, message.sent_ms))
    elif isinstance(message, Heartbeat):
        raft.outbox.append(HeartbeatResponse(me, to, term, 0, message.sent_ms))
    elif isinstance(message, Install):
        raft.outbox.append(
            InstallResponse(me, to, term, message.index, message.chunk, False, message.sent_ms)
        )
