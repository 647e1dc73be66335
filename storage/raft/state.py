"""The volatile state of one term: a follower's, and the leader's."""

from __future__ import annotations

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.deferred_voters import DeferredVoters
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.settings import LONG_AGO_MS, NEVER_MS

NOBODY = -1
"""In place of a member id, or of an index."""


class FollowerState:
    """The state that concerns one term's leader; a new term resets it."""

    __slots__ = ("leader_commit", "pending_ack_index", "pending_ack_prev", "sent_ms", "verified_index")

    def __init__(self, commit_index: int) -> None:
        self.verified_index = commit_index
        """Our log equals the leader's up to there; every leader has what is committed."""
        self.leader_commit = 0
        self.sent_ms = 0
        """The newest time of the leader's clock among its messages."""
        self.pending_ack_index = NOBODY
        """The entry that must be flushed before its request is wholly acknowledged; -1 for none."""
        self.pending_ack_prev = 0


class LeaderState:
    """The volatile state of one leader in one term."""

    __slots__ = (
        "change_pending",
        "contact_ms",
        "deferred_voters",
        "heartbeat_due_ms",
        "is_only_voter",
        "is_serving",
        "lease_dropped",
        "next_configuration",
        "no_op_index",
        "progress",
        "push_due_ms",
        "resumed_index",
        "silent_heartbeats",
        "transfer_due_ms",
        "transfer_target",
        "voter_sets",
    )

    def __init__(self, heartbeat_due_ms: int) -> None:
        self.progress: dict[int, Progress] = {}
        """The other members, in ascending order."""
        self.voter_sets: tuple[tuple[int, ...], ...] = ()
        self.deferred_voters = DeferredVoters((), NOBODY)
        """The voters that entries need not reach at once."""
        self.is_only_voter = False
        """Whether this member is the only voter."""
        self.no_op_index = 0
        """The first entry of the term; 0 until it has one."""
        self.resumed_index = 0
        """The last entry when a leadership transfer timed out, 0 before that. It may be committed yet,
        although its waiters were failed: appends are accepted again once it is applied."""
        self.is_serving = False
        """Whether the no-op is committed: only then may clients append, and members change."""
        self.next_configuration: Configuration | None = None
        """To be appended next."""
        self.change_pending = True
        """Whether the current configuration may still be uncommitted, or joint."""
        self.heartbeat_due_ms = heartbeat_due_ms
        self.push_due_ms = NEVER_MS
        """When a new commit index is sent to members that no entries carry it to."""
        self.contact_ms = LONG_AGO_MS
        """Since when a majority is known to follow, at the last heartbeat."""
        self.silent_heartbeats = 0
        """How many heartbeats in a row found nothing newer."""
        self.transfer_target = NOBODY
        self.transfer_due_ms = 0
        self.lease_dropped = False
        """Whether a TimeoutNow was sent in this term: its receiver may lead without our knowing."""

    def adopt(self, configuration: Configuration, member: int, next_index: int) -> None:
        """Leads the members of this configuration; new members are sent `next_index` first."""
        previous = self.progress
        self.progress = {
            other: previous.get(other) or Progress(other, next_index)
            for other in configuration.members
            if other != member
        }
        self.voter_sets = configuration.voter_sets()
        self.deferred_voters = DeferredVoters(self.voter_sets[0] if len(self.voter_sets) == 1 else (), member)
        self.is_only_voter = self.voter_sets == ((member,),)
        self.change_pending = True
        self.contact_ms = LONG_AGO_MS
        self.silent_heartbeats = 0
