"""What a member keeps for one term only: as a follower of its leader, and as the leader itself."""

from __future__ import annotations

from storage.raft.configuration import Configuration
from storage.raft.progress import Progress
from storage.raft.settings import LONG_AGO_MS, NEVER_MS
from storage.raft.spares import Spares

NOBODY = -1
"""In place of a member id, or of an index."""


class Following:
    """What holds for one term's leader only; a new term begins afresh."""

    __slots__ = ("leader_commit", "owed_index", "owed_prev", "sent_ms", "verified_index")

    def __init__(self, commit_index: int) -> None:
        self.verified_index = commit_index
        """Our log equals the leader's up to there; every leader has what is committed."""
        self.leader_commit = 0
        self.sent_ms = 0
        """The newest of the leader's clock that we saw."""
        self.owed_index = NOBODY
        """The entry that must be flushed before the request for it is wholly answered; -1 for none."""
        self.owed_prev = 0


class Leadership:
    """The volatile state of one leader in one term."""

    __slots__ = (
        "alone",
        "contact_ms",
        "heartbeat_due_ms",
        "lease_dropped",
        "no_op_index",
        "progress",
        "push_due_ms",
        "resumed_index",
        "serving",
        "silent_heartbeats",
        "spares",
        "transfer_due_ms",
        "transfer_target",
        "unsettled",
        "voter_sets",
        "wanted_configuration",
    )

    def __init__(self, heartbeat_due_ms: int) -> None:
        self.progress: dict[int, Progress] = {}
        """The other members, in ascending order."""
        self.voter_sets: tuple[tuple[int, ...], ...] = ()
        self.spares = Spares((), NOBODY)
        """Whom entries need not reach at once."""
        self.alone = False
        """Whether this member is the only voter."""
        self.no_op_index = 0
        """The first entry of the term; 0 until it has one."""
        self.resumed_index = 0
        """The last entry when a hand-over came to nothing, 0 before that. It may be committed yet,
        although who waited for it was told to ask again: appends are taken once it is applied."""
        self.serving = False
        """Whether that entry is committed: only then may clients append, and members change."""
        self.wanted_configuration: Configuration | None = None
        """To be appended next."""
        self.unsettled = True
        """Whether the current configuration may still be uncommitted, or joint."""
        self.heartbeat_due_ms = heartbeat_due_ms
        self.push_due_ms = NEVER_MS
        """When a new commit is sent to those whom no entries have carried it."""
        self.contact_ms = LONG_AGO_MS
        """Since when a majority was known to listen, at the last heartbeat."""
        self.silent_heartbeats = 0
        """How many heartbeats in a row found nothing newer."""
        self.transfer_target = NOBODY
        self.transfer_due_ms = 0
        self.lease_dropped = False
        """Whether another was told to stand for election: it may lead without our knowing."""

    def adopt(self, configuration: Configuration, member: int, next_index: int) -> None:
        """Lead the members of this configuration; those that are new are sent `next_index` first."""
        known = self.progress
        self.progress = {
            other: known.get(other) or Progress(other, next_index)
            for other in configuration.members
            if other != member
        }
        self.voter_sets = configuration.voter_sets()
        self.spares = Spares(self.voter_sets[0] if len(self.voter_sets) == 1 else (), member)
        self.alone = self.voter_sets == ((member,),)
        self.unsettled = True
        self.contact_ms = LONG_AGO_MS
        self.silent_heartbeats = 0
