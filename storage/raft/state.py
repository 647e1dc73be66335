"""The state of one member: what it keeps through all terms, and of one term a follower's and the leader's."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.deferred_voters import DeferredVoters
from lockstep.storage.raft.messages import Install, InstallResponse, Message
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.settings import LONG_AGO_MS, NEVER_MS, RaftSettings
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.raft.transitions import Role, check
from lockstep.storage.types import HardState

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
        """The configuration to be appended next."""
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


class RaftState:
    """The state of one member, for the modules of this package; `Raft` is its interface.

    Args: as `Raft`'s.
    """

    __slots__ = (
        "accepted",
        "chunk_acks",
        "chunks",
        "commit_index",
        "configurations",
        "election_due_ms",
        "follower_state",
        "granted",
        "hard_state_flushed",
        "hard_state_pending",
        "installs",
        "leader_contact_ms",
        "leader_id",
        "leader_state",
        "member_id",
        "now_ms",
        "outbox",
        "persisted_index",
        "random_below",
        "role",
        "settings",
        "term",
        "terms",
        "truncate_after",
        "truncation_count",
        "voted_for",
        "wait_ms",
    )

    def __init__(
        self,
        member_id: int,
        configurations: ConfigurationStack,
        hard_state: HardState,
        terms: TermIndex,
        commit_index: int,
        settings: RaftSettings,
        now_ms: int,
        random_below: Callable[[int], int],
    ) -> None:
        self.member_id = member_id
        self.configurations = configurations
        self.settings = settings
        self.random_below = random_below
        self.now_ms = now_ms
        # A hard state that was lost with its disk belonged to another member id: this member has not voted.
        self.term = max(hard_state.term, terms.last_term)
        self.voted_for = hard_state.voted_for if self.term == hard_state.term else NOBODY
        self.hard_state_pending = False
        self.hard_state_flushed = True
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        """The leader of this term as far as we know; -1 for none."""
        self.terms = terms
        self.commit_index = commit_index
        self.persisted_index = terms.last_index
        """Our own log is flushed up to there."""
        self.truncation_count = 0
        """How often the log was truncated; goes with each write, so that a stale completion is known."""
        self.follower_state = FollowerState(commit_index)
        self.leader_state: LeaderState | None = None
        self.granted: dict[int, bool] = {}
        # Before the restart we may have responded to another leader: keep the promise of its lease.
        self.wait_ms = settings.election_timeout_ms
        self.leader_contact_ms = LONG_AGO_MS
        self.election_due_ms = now_ms
        if configurations.current.voter_sets() != ((member_id,),):
            self.leader_contact_ms = now_ms
            self.restart_timer()
        self.outbox: list[Message] = []
        self.truncate_after: int | None = None
        self.accepted: tuple[int, int] | None = None
        self.installs: list[int] = []
        self.chunks: list[Install] = []
        self.chunk_acks: list[InstallResponse] = []

    @property
    def last_index(self) -> int:
        return self.terms.last_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, committed or not."""
        return self.configurations.current

    @property
    def is_serving(self) -> bool:
        """True where this member leads and its term's no-op is committed: only then may clients append."""
        return self.leader_state is not None and self.leader_state.is_serving

    @property
    def is_transferring(self) -> bool:
        """True while this leader transfers its leadership, and takes no proposals."""
        return self.leader_state is not None and self.leader_state.transfer_target != NOBODY

    @property
    def accepts_proposals(self) -> bool:
        """True where this leader takes proposals now: it serves, and does not transfer."""
        leader_state = self.leader_state
        return leader_state is not None and leader_state.is_serving and leader_state.transfer_target == NOBODY

    def restart_timer(self) -> None:
        """Waits for one to two election timeouts from now on."""
        timeout_ms = self.settings.election_timeout_ms
        self.wait_ms = timeout_ms + self.random_below(timeout_ms)
        self.election_due_ms = self.now_ms + self.wait_ms

    def become(self, role: Role) -> None:
        """Changes the role, as the table allows."""
        check(self.role, role)
        self.role = role

    def extend(self, size: int = 0) -> int:
        """Adds the leader's next entry; returns its index."""
        index = self.terms.last_index + 1
        self.terms.append(index, self.term, size)
        return index
