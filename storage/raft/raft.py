"""One member's Raft: the state, what may be asked of it, and where each message goes.

Inputs are method calls with the time as an argument; outputs are drained once with `ready()`. Disk is a peer:
`persisted` says what this member holds, as answers say it of others. Invariants: term and commit index never
go back; no message leaves while a hard state is not on disk; an entry counts where it is flushed; nothing is
proposed before the no-op of the term is committed. Each concern has its module: `term_rules`, `election` and
`roles`; `sending`, `spares` and `replication` for the leader, `accepting` for followers; `membership`,
`transfer`, `lease`, `install`. The attributes are theirs to change; the shell reads them and calls methods.

Payloads, files, sockets and clocks are the shell's. Source: Raft paper, figure 2; Ongaro's thesis; the shape
of `ready` after etcd's raft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from storage.raft import (
    accepting,
    election,
    install,
    lease,
    membership,
    messages,
    replication,
    roles,
    sending,
    term_rules,
    transfer,
)
from storage.raft.configuration import Configuration, ConfigurationStack
from storage.raft.messages import Install, InstallResponse, Message
from storage.raft.progress import Progress
from storage.raft.ready import Ready
from storage.raft.settings import LONG_AGO_MS, NEVER_MS, RaftSettings
from storage.raft.term_index import TermIndex
from storage.raft.transitions import Role, check
from storage.raft.volatile import NOBODY, Following, Leadership
from storage.types import HardState, NotLeader


class Raft:
    """The state of one member of one log group.

    Args:
        member_id: this member; messages for others are ignored.
        configurations: those that the recovered log and its checkpoint hold.
        hard_state: as recovered; term 0 at the first start.
        terms: index, term and size of the recovered log's entries, all of them flushed.
        commit_index: the checkpoint's index; what is above it becomes known again from a leader.
        now_ms: a monotonic clock, as in every later call; where it may be left out, the last one holds.
        draw: `draw(n)` gives a number from 0 to n - 1.
    """

    __slots__ = (
        "accepted",
        "chunk_acks",
        "chunks",
        "commit_index",
        "configurations",
        "cuts",
        "draw",
        "election_due_ms",
        "following",
        "granted",
        "hard_state_flushed",
        "hard_state_wanted",
        "heard_ms",
        "installs",
        "leader_id",
        "leading",
        "member_id",
        "now_ms",
        "outbox",
        "persisted_index",
        "role",
        "settings",
        "term",
        "terms",
        "truncate_after",
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
        draw: Callable[[int], int],
    ) -> None:
        self.member_id = member_id
        self.configurations = configurations
        self.settings = settings
        self.draw = draw
        self.now_ms = now_ms
        # A hard state that was lost with its disk belonged to another member id: this one has not voted.
        self.term = max(hard_state.term, terms.last_term)
        self.voted_for = hard_state.voted_for if self.term == hard_state.term else NOBODY
        self.hard_state_wanted = False
        self.hard_state_flushed = True
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        """The leader of this term as far as we know; -1 for none."""
        self.terms = terms
        self.commit_index = commit_index
        self.persisted_index = terms.last_index
        """Our own log is flushed up to there."""
        self.cuts = 0
        """How often entries were forgotten; goes with each write, so that a stale completion is known."""
        self.following = Following(commit_index)
        self.leading: Leadership | None = None
        self.granted: dict[int, bool] = {}
        # Before the stop we may have told a leader that we hear it: keep that promise, if it was another.
        self.wait_ms = settings.election_timeout_ms
        self.heard_ms = LONG_AGO_MS
        self.election_due_ms = now_ms
        if configurations.current.voter_sets() != ((member_id,),):
            self.heard_ms = now_ms
            roles.restart_timer(self)
        self.outbox: list[Message] = []
        self.truncate_after: int | None = None
        self.accepted: tuple[int, int] | None = None
        self.installs: list[int] = []
        self.chunks: list[Install] = []
        self.chunk_acks: list[InstallResponse] = []

    # --- state --------------------------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        return self.terms.last_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, committed or not."""
        return self.configurations.current

    @property
    def serving(self) -> bool:
        """Whether this member leads and its term's no-op is committed: only then may clients append."""
        return self.leading is not None and self.leading.serving

    @property
    def transferring(self) -> bool:
        """Whether this leader is handing over, and takes no proposals meanwhile."""
        return self.leading is not None and self.leading.transfer_target != NOBODY

    @property
    def accepting(self) -> bool:
        """Whether this leader takes proposals now: it serves, and is not handing over."""
        leading = self.leading
        return leading is not None and leading.serving and leading.transfer_target == NOBODY

    @property
    def idle(self) -> bool:
        """Whether `ready` would be empty. Never so for a leader with followers: they may be due something."""
        leading = self.leading
        if leading is not None and (
            leading.progress or leading.no_op_index == 0 or leading.wanted_configuration is not None
        ):
            return False
        return not (
            self.outbox
            or self.hard_state_wanted
            or self.accepted
            or self.installs
            or self.chunks
            or self.chunk_acks
        )

    @property
    def alone(self) -> bool:
        """Whether this member leads nobody but itself and wants nothing."""
        return self.leading is not None and self.idle

    @property
    def deadline_ms(self) -> int:
        """When `tick` is next wanted; NEVER_MS where nothing is timed."""
        if self.leading is not None:
            leading = self.leading
            if not leading.progress:
                return NEVER_MS
            return min(leading.heartbeat_due_ms, leading.push_due_ms, leading.spares.due_ms)
        return self.election_due_ms if roles.may_campaign(self) else NEVER_MS

    def has_lease(self, now_ms: int) -> bool:
        """Whether no other leader can have been elected by `now_ms`: committed state here is the newest."""
        return self.leading is not None and lease.has_lease(self, self.leading, now_ms)

    def contact_ms(self, now_ms: int) -> int:
        """When at least what a majority has answered was sent; until then nobody else can have been elected.

        LONG_AGO_MS for who does not lead.
        """
        return LONG_AGO_MS if self.leading is None else lease.contact_ms(self, self.leading, now_ms)

    def progress(self, member: int) -> Progress | None:
        """What this leader knows of another member, to look at; None for others and without leadership."""
        return self.leading.progress.get(member) if self.leading is not None else None

    def needed_from(self, kept_index: int) -> int | None:
        """The lowest match of the members in touch that are sent entries; None without one. What follows it
        may have to be sent, the first time or again.

        Args: kept_index: who needs what is before is sent from the disk.
        """
        return None if self.leading is None else sending.needed_from(self.leading, kept_index)

    # --- inputs: time and messages ------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> None:
        """A message has arrived; `ready` comes before the next. Ignores what is not for the core.

        Raises IllegalTruncation where committed entries would be lost: the process must stop.
        """
        self._at(now_ms)
        if message.to != self.member_id or message.sender == message.to:
            return
        handler = HANDLERS.get(type(message))
        if handler is not None and (message.term == self.term or term_rules.admit(self, message)):
            handler(self, message)

    def tick(self, now_ms: int) -> None:
        """Time has passed; sooner than `deadline_ms` nothing happens."""
        self._at(now_ms)
        if self.leading is not None:
            replication.tick(self, self.leading)
        elif self.now_ms >= self.election_due_ms:
            self.campaign(now_ms)

    def campaign(self, now_ms: int) -> None:
        """Stand for election, unless a leader is heard. The only voter wins once its vote is flushed."""
        self._at(now_ms)
        if roles.may_campaign(self) and not roles.hears_leader(self):
            election.ask(self)

    def unreachable(self, peer: int) -> None:
        """The transport lost the connection to a peer, and what was on the way with it."""
        progress = self.progress(peer)
        if progress is not None:
            progress.lost(self.now_ms)

    def leader_gone(self, member: int, now_ms: int) -> None:
        """The process that led as `member` is known to have ended; on proof only: leases rest on it."""
        self._at(now_ms)
        roles.leader_gone(self, member)

    def found(self, rank: int, now_ms: int) -> None:
        """The group is new, so that nobody has promised anything: stand for election after so many others."""
        self._at(now_ms)
        if self.term == 0:
            roles.stand_in_turn(self, rank)

    # --- inputs: the disk ---------------------------------------------------------------------------------

    def hard_state_persisted(self, hard_state: HardState) -> None:
        """A hard state that `ready` gave out is on disk; one that has been replaced since means nothing."""
        if (hard_state.term, hard_state.voted_for) != (self.term, self.voted_for):
            return
        self.hard_state_wanted = False
        self.hard_state_flushed = True
        if self.voted_for == self.member_id:
            election.own_vote_flushed(self)

    def persisted(self, index: int, term: int, cuts: int, now_ms: int = LONG_AGO_MS) -> None:
        """Our log is flushed up to the entry (index, term); `cuts` as it was when that write began.

        The completion of a write from before a truncation is stale, even where the same entry is there again.
        """
        self._at(now_ms)
        if cuts != self.cuts or index <= self.persisted_index or self.terms.term_at(index) != term:
            return
        self.persisted_index = index
        if self.leading is not None:
            replication.advance_commit(self, self.leading)
        else:
            accepting.flushed(self)

    def checkpointed(self, index: int) -> None:
        """A flushed checkpoint covers the entries up to `index`; it is shipped to those who need them."""
        index = min(index, self.commit_index)
        self.terms.trim(index)
        self.configurations.trim(index)

    def chunk_stored(self, chunk: Install, accepted: bool = True) -> None:
        """A chunk of `ready().chunks` is on disk; or it cannot be used and the shipment must begin again."""
        install.chunk_stored(self, chunk, accepted)

    def wants_install(self, index: int, last_term: int) -> bool:
        """Whether a checkpoint up to (index, last_term) is still wanted: ask right before switching to it."""
        return install.wanted(self, index, last_term)

    def installed(self, index: int, last_term: int, configuration: Configuration, now_ms: int) -> None:
        """The log has been switched to a shipped checkpoint and has no entries above it.

        Raises IllegalTruncation where it was not wanted: the process must stop.
        """
        self._at(now_ms)
        install.installed(self, index, last_term, configuration)

    # --- inputs: what the application asks ----------------------------------------------------------------

    def propose(self, size: int = 0, now_ms: int = LONG_AGO_MS) -> int:
        """Take the next index for an entry of `size` bytes. Raises NotLeader, also while handing over."""
        self._at(now_ms)
        if not self.accepting:
            raise NotLeader(f"member {self.member_id} takes no proposals in term {self.term}")
        return self.extend(size)

    def change_members(self, voters: Sequence[int], learners: Sequence[int] = ()) -> None:
        """Ask for other members; `configuration` is in force. Raises NotLeader, ConfigurationRefused."""
        membership.change(self, self._leading(), voters, learners)

    def resign(self) -> None:
        """Stop leading without an heir: this member's disk takes nothing."""
        if self.leading is not None:
            roles.become_follower(self, self.term)

    def transfer(self, target: int, now_ms: int) -> None:
        """Hand leadership to another voter. Raises NotLeader, ConfigurationRefused."""
        self._at(now_ms)
        transfer.begin(self, self._leading(), target)

    # --- output -------------------------------------------------------------------------------------------

    def ready(self) -> Ready:
        """Everything to do since the last call."""
        ready = Ready()
        leading = self.leading
        if leading is not None:
            if leading.no_op_index == 0:
                ready.no_op_index = leading.no_op_index = self.extend()
            elif leading.wanted_configuration is not None:
                ready.configuration = membership.append_wanted(self, leading)
            if leading.progress:
                sending.send(self, leading)
        if self.hard_state_wanted:
            ready.hard_state = HardState(self.term, self.voted_for)
            self.hard_state_wanted = False
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

    # --- for the modules of this package ------------------------------------------------------------------

    def become(self, role: Role) -> None:
        """Change role, as the table allows."""
        check(self.role, role)
        self.role = role

    def extend(self, size: int = 0) -> int:
        """The leader's next entry; returns its index."""
        index = self.terms.last_index + 1
        self.terms.append(index, self.term, size)
        return index

    def _at(self, now_ms: int) -> None:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def _leading(self) -> Leadership:
        if self.leading is None:
            raise NotLeader(f"member {self.member_id} does not lead in term {self.term}")
        return self.leading


HANDLERS: dict[type[Message], Callable[[Raft, Any], None]] = {
    messages.VoteRequest: election.on_vote_request,
    messages.VoteResponse: election.on_vote_response,
    messages.Append: accepting.on_append,
    messages.AppendResponse: replication.on_append_response,
    messages.Heartbeat: accepting.on_heartbeat,
    messages.HeartbeatResponse: replication.on_heartbeat_response,
    messages.TimeoutNow: election.on_timeout_now,
    messages.Install: install.on_install,
    messages.InstallResponse: replication.on_install_response,
}
