"""CheckQuorum and the leader's lease: is a majority listening, and since when at the latest is that known.

A member that answers in this term refuses to elect another leader for an election timeout from when it
received the message, hence at least from when the leader sent it. The quorum-th newest of those times, plus
the timeout less the stated drift of both clocks, is how long no other leader can be elected. Source: Raft
thesis, sections 6.2 and 6.4.1; etcd's rule that a lease needs CheckQuorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft.quorum import joint_committed_index
from storage.raft.volatile import Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def contact_ms(raft: Raft, leading: Leadership, now_ms: int) -> int:
    """Since when at the latest a majority of each voter set has known this leader; ourselves we know now."""
    contacts = {member: progress.contact_ms for member, progress in leading.progress.items()}
    contacts[raft.member_id] = now_ms
    return joint_committed_index(leading.voter_sets, contacts)


def quorum_is_silent(raft: Raft, leading: Leadership) -> bool:
    """CheckQuorum, with each heartbeat: no majority has answered anything newer for an election timeout.

    Heartbeats are counted, not time: a leader that was held up itself has answers that it has not read.
    """
    newest_ms = contact_ms(raft, leading, raft.now_ms)
    if newest_ms > leading.contact_ms:
        leading.contact_ms = newest_ms
        leading.silent_heartbeats = 0
        return False
    leading.silent_heartbeats += 1
    return leading.silent_heartbeats * raft.settings.heartbeat_ms >= raft.settings.election_timeout_ms


def has_lease(raft: Raft, leading: Leadership, now_ms: int) -> bool:
    """Whether no other member can have been elected by now: what is committed here is the newest there is."""
    if not leading.serving or leading.lease_dropped:
        return False
    return leading.alone or now_ms < contact_ms(raft, leading, now_ms) + raft.settings.lease_ms
