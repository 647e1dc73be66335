"""One voter's Raft: propose entries, count who persisted them, say what is committed.

Inputs are method calls, outputs are drained once with `ready()`. Disk is a peer: the core learns through
`persisted` that this node holds an entry, as it will of other nodes. Invariants: terms and the commit index
never go back; only an entry of the current term is committed by counting; nothing is proposed, and so no
client append is accepted, before the hard state that the vote rests on is on disk.

Not done here: the messages between voters (elections, replication, membership changes). A configuration
of more than one voter is refused. Source: Raft paper, figure 2; ready/advance shape after etcd's raft.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.raft import quorum
from storage.raft.term_index import TermIndex
from storage.raft.transitions import Role, check
from storage.types import HardState, NotLeader


class UnsupportedMembership(ValueError):
    """A voter set that this core cannot serve yet."""


class Ready:
    """What the core wants done since the last drain.

    `hard_state` must be flushed before anything else is acted on, then reported with `hard_state_persisted`.
    `no_op` asks for an empty entry at that index, appended before any other.
    """

    __slots__ = ("commit_index", "hard_state", "no_op_index")

    def __init__(self, hard_state: HardState | None, no_op_index: int | None, commit_index: int) -> None:
        self.hard_state = hard_state
        self.no_op_index = no_op_index
        self.commit_index = commit_index


class Raft:
    """The state of one voter of one log group.

    Args:
        node_id: this voter.
        voters: the configuration, `node_id` included.
        hard_state: as recovered; term 0 at the first start.
        terms: index and term of the recovered log's tail.
        commit_index: the checkpoint's index; a recovered log above it is committed again by a new term.
    """

    __slots__ = (
        "_hard_state_dirty",
        "_match",
        "_no_op_index",
        "_no_op_wanted",
        "commit_index",
        "node_id",
        "role",
        "term",
        "terms",
        "voted_for",
        "voters",
    )

    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        hard_state: HardState,
        terms: TermIndex,
        commit_index: int,
    ) -> None:
        if tuple(voters) != (node_id,):
            raise UnsupportedMembership(f"voters {list(voters)}: this version runs groups of one voter")
        self.node_id = node_id
        self.voters = tuple(voters)
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.role = Role.FOLLOWER
        self.terms = terms
        self.commit_index = commit_index
        self._match: dict[int, int] = {}
        self._hard_state_dirty = False
        self._no_op_wanted = False
        self._no_op_index = 0

    @property
    def last_index(self) -> int:
        return self.terms.last_index

    @property
    def leader_id(self) -> int:
        """The leader of this term as far as we know; -1 for none."""
        return self.node_id if self.role is Role.LEADER else -1

    @property
    def serving(self) -> bool:
        """Whether this node leads and its term's no-op is committed: only then may clients append."""
        return self.role is Role.LEADER and 0 < self._no_op_index <= self.commit_index

    def campaign(self) -> None:
        """Stand for election in a new term; the vote counts once the hard state is on disk."""
        self._become(Role.CANDIDATE)
        self.term += 1
        self.voted_for = self.node_id
        self._hard_state_dirty = True

    def hard_state_persisted(self, hard_state: HardState) -> None:
        """A hard state that `ready` gave out is on disk; stale reports are ignored."""
        own_vote = (self.term, self.node_id)
        if self.role is not Role.CANDIDATE or (hard_state.term, hard_state.voted_for) != own_vote:
            return
        if quorum.vote_won([self.voters], {self.node_id: True}):
            self._become(Role.LEADER)
            self._match = {self.node_id: 0}
            self._no_op_wanted = True

    def propose(self) -> int:
        """Take the next index for an entry of this term; returns it. Raises NotLeader."""
        if self.role is not Role.LEADER:
            raise NotLeader(f"node {self.node_id} does not lead in term {self.term}")
        index = self.terms.last_index + 1
        self.terms.append(index, self.term)
        return index

    def persisted(self, index: int, term: int) -> None:
        """This node has flushed everything up to the entry (index, term).

        A completion of an entry that has been replaced since is stale and ignored.
        """
        if self.role is not Role.LEADER or self.terms.term_at(index) != term:
            return
        if index > self._match[self.node_id]:
            self._match[self.node_id] = index
            self._advance_commit()

    def ready(self) -> Ready:
        """Everything to do since the last call; each thing is handed out once."""
        hard_state = None
        if self._hard_state_dirty:
            hard_state = HardState(self.term, self.voted_for)
            self._hard_state_dirty = False
        no_op_index = None
        if self._no_op_wanted:
            no_op_index = self._no_op_index = self.propose()
            self._no_op_wanted = False
        return Ready(hard_state, no_op_index, self.commit_index)

    def checkpointed(self, index: int) -> None:
        """A flushed checkpoint covers the entries up to `index`."""
        self.terms.trim(min(index, self.commit_index))

    def _advance_commit(self) -> None:
        index = quorum.joint_committed_index([self.voters], self._match)
        # Entries of older terms commit only under one of ours (Raft paper, section 5.4.2).
        if index > self.commit_index and self.terms.term_at(index) == self.term:
            self.commit_index = index

    def _become(self, role: Role) -> None:
        check(self.role, role)
        self.role = role
