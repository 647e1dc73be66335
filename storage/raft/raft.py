"""One member's Raft: the state, its inputs and outputs, and the handler of each message.

Inputs are method calls with the time as an argument; outputs are drained once with `ready()`. Disk is a peer:
`on_persisted` acknowledges entries of this member, as responses do of others. Invariants: term and commit
index never go back; no message leaves while a hard state is not on disk; an entry counts where it is flushed;
nothing is proposed before the no-op of the term is committed. Each concern has its module: `term_checks`,
`election` and `role_changes`; `replication_send`, `deferred_voters` and `replication` for the leader,
`follower`; `membership`, `transfer`, `lease`, `install`. These change the attributes; the shell reads them
and calls methods.

Payloads, files, sockets and clocks are the shell's. Source: Raft paper, figure 2; Ongaro's thesis; the shape
of `ready` after etcd's raft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockstep.storage.raft import (
    election,
    follower,
    install,
    lease,
    membership,
    messages,
    replication,
    replication_send,
    role_changes,
    term_checks,
    transfer,
)
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Install, Message
from lockstep.storage.raft.progress import Progress
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.settings import LONG_AGO_MS, NEVER_MS
from lockstep.storage.raft.state import LeaderState, RaftState
from lockstep.storage.types import HardState, NotLeader


class Raft(RaftState):
    """The state of one member of one log group.

    Args:
        member_id: this member; messages for others are ignored.
        configurations: those that the recovered log and its checkpoint hold.
        hard_state: as recovered; term 0 at the first start.
        terms: index, term and size of the recovered log's entries, all of them flushed.
        commit_index: the checkpoint's index; the commits above it become known again from a leader.
        now_ms: a monotonic clock, as in every later call; where it is omitted, the last one holds.
        random_below: `random_below(n)` gives a number from 0 to n - 1.
    """

    __slots__ = ()

    # --- state --------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True where `ready` would be empty. Never for a leader with followers: these may be due a
        message."""
        leader_state = self.leader_state
        if leader_state is not None and (
            leader_state.progress
            or leader_state.no_op_index == 0
            or leader_state.next_configuration is not None
        ):
            return False
        return not (
            self.outbox
            or self.hard_state_pending
            or self.accepted
            or self.installs
            or self.chunks
            or self.chunk_acks
        )

    @property
    def alone(self) -> bool:
        """True for a leader without followers whose `ready` would be empty."""
        return self.leader_state is not None and self.idle

    @property
    def commits_alone(self) -> bool:
        """True for a leader that is the only member, takes proposals, and has committed all of its log:
        the next entries are committed once they are flushed here, and until then `ready` would be empty."""
        leader_state = self.leader_state
        return (
            leader_state is not None
            and leader_state.is_only_voter
            and not leader_state.change_pending
            and self.commit_index == self.terms.last_index
            and self.idle
            and self.accepts_proposals
        )

    @property
    def deadline_ms(self) -> int:
        """The time when `tick` is due; NEVER_MS where nothing is timed."""
        if self.leader_state is not None:
            leader_state = self.leader_state
            if not leader_state.progress:
                return NEVER_MS
            return min(
                leader_state.heartbeat_due_ms, leader_state.push_due_ms, leader_state.deferred_voters.due_ms
            )
        return self.election_due_ms if role_changes.may_campaign(self) else NEVER_MS

    def has_lease(self, now_ms: int) -> bool:
        """Returns whether no other leader can have been elected by `now_ms`: committed state here is the
        newest."""
        return self.leader_state is not None and lease.has_lease(self, self.leader_state, now_ms)

    def contact_ms(self, now_ms: int) -> int:
        """Returns when the newest messages were sent that a majority responded to; no other leader until
        then.

        LONG_AGO_MS for a member that does not lead.
        """
        return LONG_AGO_MS if self.leader_state is None else lease.contact_ms(self, self.leader_state, now_ms)

    def progress(self, member: int) -> Progress | None:
        """Returns the progress of another member, read-only; None for others and without leadership."""
        return self.leader_state.progress.get(member) if self.leader_state is not None else None

    def lowest_active_match(self, kept_index: int) -> int | None:
        """Returns the lowest match of the active members that are sent entries; None without one. The entries
        after it may have to be sent, the first time or again.

        Args: kept_index: a member that needs earlier entries is sent them from the disk.
        """
        return (
            None
            if self.leader_state is None
            else replication_send.lowest_active_match(self.leader_state, kept_index)
        )

    # --- inputs: time and messages ------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """Handles a message; `ready` comes before the next. Ignores messages that are not for the core.

        Raises IllegalTruncation where committed entries would be lost: the process must stop.
        """
        self._advance_clock(now_ms)
        if message.to != self.member_id or message.sender == message.to:
            return
        handler = HANDLERS.get(type(message))
        if handler is not None and (message.term == self.term or term_checks.admit(self, message)):
            handler(self, message)

    def tick(self, now_ms: int) -> None:
        """Handles the passing of time; sooner than `deadline_ms` nothing happens."""
        self._advance_clock(now_ms)
        if self.leader_state is not None:
            replication.tick(self, self.leader_state)
        elif self.now_ms >= self.election_due_ms:
            self.campaign(now_ms)

    def campaign(self, now_ms: int) -> None:
        """Stands for election, unless a leader lives. The only voter wins once its vote is flushed."""
        self._advance_clock(now_ms)
        if role_changes.may_campaign(self) and not role_changes.has_live_leader(self):
            election.start_pre_vote(self)

    def report_unreachable(self, peer: int) -> None:
        """Reports that the transport lost the connection to a peer, and the messages in flight."""
        progress = self.progress(peer)
        if progress is not None:
            progress.on_lost(self.now_ms)

    def on_leader_stopped(self, member: int, now_ms: int) -> None:
        """Handles the end of the process that led as `member`; on proof only: leases depend on it."""
        self._advance_clock(now_ms)
        role_changes.on_leader_stopped(self, member)

    def campaign_after(self, rank: int, now_ms: int) -> None:
        """Stands for election in a new group, which has no promises yet, after `rank` others."""
        self._advance_clock(now_ms)
        if self.term == 0:
            role_changes.campaign_after(self, rank)

    # --- inputs: the disk ---------------------------------------------------------------------------------

    def on_hard_state_persisted(self, hard_state: HardState) -> None:
        """Handles a hard state of `ready` that is on disk; ignores one that has been replaced since."""
        if (hard_state.term, hard_state.voted_for) != (self.term, self.voted_for):
            return
        self.hard_state_pending = False
        self.hard_state_flushed = True
        if self.voted_for == self.member_id:
            election.on_own_vote_flushed(self)

    def on_persisted(self, index: int, term: int, truncation_count: int, now_ms: int = LONG_AGO_MS) -> None:
        """Handles a flush up to the entry (index, term); `truncation_count` as it was when that write began.

        The completion of a write from before a truncation is stale, even where the same entry is there again.
        """
        self._advance_clock(now_ms)
        if (
            truncation_count != self.truncation_count
            or index <= self.persisted_index
            or self.terms.term_at(index) != term
        ):
            return
        self.persisted_index = index
        if self.leader_state is not None:
            replication.advance_commit(self, self.leader_state)
        else:
            follower.on_flushed(self)

    def on_checkpoint(self, index: int) -> None:
        """Handles a flushed checkpoint up to `index`; it is sent to members that need these entries."""
        index = min(index, self.commit_index)
        self.terms.trim(index)
        self.configurations.trim(index)

    def chunk_stored(self, chunk: Install, accepted: bool = True) -> None:
        """Handles a chunk that is on disk; or that cannot be used, so that the snapshot send begins again."""
        install.chunk_stored(self, chunk, accepted)

    def needs_install(self, index: int, last_term: int) -> bool:
        """Returns whether a snapshot up to (index, last_term) is still needed; call right before
        switching."""
        return install.is_needed(self, index, last_term)

    def on_installed(self, index: int, last_term: int, configuration: Configuration, now_ms: int) -> None:
        """Handles the switch of the log to a received snapshot, without entries above it.

        Raises IllegalTruncation where it was not needed: the process must stop.
        """
        self._advance_clock(now_ms)
        install.on_installed(self, index, last_term, configuration)

    # --- inputs: requests of the application --------------------------------------------------------------

    def propose(self, size: int = 0, now_ms: int = LONG_AGO_MS) -> int:
        """Takes the next index for an entry of `size` bytes. Raises NotLeader, also while transferring."""
        self._advance_clock(now_ms)
        if not self.accepts_proposals:
            raise NotLeader(f"member {self.member_id} takes no proposals in term {self.term}")
        return self.extend(size)

    def change_members(self, voters: Sequence[int], learners: Sequence[int] = ()) -> None:
        """Requests other members; `configuration` is in force. Raises NotLeader, ConfigurationRejected."""
        membership.change(self, self._require_leader(), voters, learners)

    def resign(self) -> None:
        """Stops leading without a successor: this member's disk takes no writes."""
        if self.leader_state is not None:
            role_changes.become_follower(self, self.term)

    def transfer(self, target: int, now_ms: int) -> None:
        """Transfers leadership to another voter. Raises NotLeader, ConfigurationRejected."""
        self._advance_clock(now_ms)
        transfer.begin(self, self._require_leader(), target)

    # --- output -------------------------------------------------------------------------------------------

    def ready(self) -> Ready:
        """Returns the work since the last call."""
        ready = Ready()
        leader_state = self.leader_state
        if leader_state is not None:
            if leader_state.no_op_index == 0:
                ready.no_op_index = leader_state.no_op_index = self.extend()
            elif leader_state.next_configuration is not None:
                ready.configuration = membership.append_next(self, leader_state)
            if leader_state.progress:
                replication_send.send(self, leader_state)
        if self.hard_state_pending:
            ready.hard_state = HardState(self.term, self.voted_for)
            self.hard_state_pending = False
        if self.outbox and self.hard_state_flushed:
            ready.messages, self.outbox = self.outbox, []
        if self.accepted is not None:
            ready.accepted, ready.truncate_after = self.accepted, self.truncate_after
            self.accepted = self.truncate_after = None
        if self.installs:
            ready.installs, self.installs = self.installs, []
        if self.chunks:
            ready.chunks, self.chunks = self.chunks, []
        if self.chunk_acks:
            ready.chunk_acks, self.chunk_acks = self.chunk_acks, []
        return ready

    def _advance_clock(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def _require_leader(self) -> LeaderState:
        if self.leader_state is None:
            raise NotLeader(f"member {self.member_id} does not lead in term {self.term}")
        return self.leader_state


HANDLERS: dict[type[Message], Callable[[Raft, Any], None]] = {
    messages.VoteRequest: election.on_vote_request,
    messages.VoteResponse: election.on_vote_response,
    messages.Append: follower.on_append,
    messages.AppendResponse: replication.on_append_response,
    messages.Heartbeat: follower.on_heartbeat,
    messages.HeartbeatResponse: replication.on_heartbeat_response,
    messages.TimeoutNow: election.on_timeout_now,
    messages.Install: install.on_install,
    messages.InstallResponse: replication.on_install_response,
}
