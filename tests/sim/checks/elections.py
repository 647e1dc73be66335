"""Who leads and who votes: one leader a term, one vote a term, nothing goes back, leaders have it all.

Votes and terms are remembered over lives: a node that forgets in a crash what it has said is found out at its
next start, or by what it says next. Source: Raft paper, figure 3 and section 5.4.2; Ongaro's thesis, sections
3.8 (persisted state), 3.10 (handing over) and 9.6 (PreVote).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.raft.messages import Append, Heartbeat, HeartbeatResponse, VoteRequest, VoteResponse
from lockstep.storage.raft.transitions import Role
from tests.sim.checks.history import History, group_of, unseen
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

TRANSFER_SLACK_MS = 1500
"""Beyond the transfer timeout: a node may just have been held up by its disk."""

CLOCK_STEP_MS = 2
"""Clocks are read in whole milliseconds."""


class Elections(Check):
    """See the module. Members are told apart by their ids, incarnation included."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self.leaders: dict[int, int] = {}
        """Member by term."""
        self._votes: dict[tuple[int, int], int] = {}
        """By (member, term): for whom."""
        self._terms: dict[int, int] = {}
        """By member: the highest term it has shown to anybody."""
        self._now: dict[Node, tuple[int, bool, int]] = {}
        """By node: its term in this life, whether it leads, its commit index."""
        self._pre_votes: dict[tuple[int, int], set[int]] = {}
        """By (candidate, term): who would vote for it."""
        self._handed_over: set[tuple[int, int]] = set()
        """(candidate, term) that stand because a leader hands over."""
        self._heard_ms: dict[int, int] = {}
        """By node: when it got the heartbeat that it last answered, by its own clock, which restarts keep."""
        self._transfers: dict[Node, tuple[int, int]] = {}
        """By node that hands over: its term, and its own time when that was first seen."""

    def opened(self, node: Node) -> None:
        """A node is back: it may not have forgotten a term that it has spoken in, nor its vote in it."""
        raft = group_of(node).raft
        member = raft.member_id
        self._now.pop(node, None)
        self._transfers.pop(node, None)
        known = self._terms.get(member, 0)
        if raft.term < known:
            text = f"member {member} starts in term {raft.term}, it has spoken in {known}"
            self.world.violate("hard state goes back", text)
        voted_for = self._votes.get((member, raft.term), raft.voted_for)
        if raft.voted_for != voted_for:
            text = (
                f"member {member} starts in term {raft.term} with {raft.voted_for}, it voted for {voted_for}"
            )
            self.world.violate("hard state goes back", text)
        self.changed(node)

    def changed(self, node: Node) -> None:
        """Look at a node's term, role and commit index."""
        if group_of(node).failed is not None:
            return
        raft = group_of(node).raft
        term, led, commit = self._now.get(node, (0, False, 0))
        if raft.term < term:
            self.world.violate("term goes back", f"{node}: from {term} to {raft.term}")
        leads = raft.role is Role.LEADER
        self._now[node] = raft.term, leads, raft.commit_index
        if not leads:
            return
        # What a member that has just failed has committed, nobody has taken in.
        if led and raft.term == term and commit < raft.commit_index <= self._history.last_index:
            entry = self._history.entries[raft.commit_index - 1]
            if entry.term != term:
                text = f"{node} leads term {term} and commits {raft.commit_index} of term {entry.term}"
                self.world.violate("an older term's entry is committed by counting", text)
        if self.leaders.setdefault(raft.term, raft.member_id) != raft.member_id:
            text = f"term {raft.term}: members {self.leaders[raft.term]} and {raft.member_id}"
            self.world.violate("two leaders in one term", text)
        if not led or raft.term != term:
            self._is_complete(node)

    def _is_complete(self, node: Node) -> None:
        """Leader completeness: what was committed in an earlier term is in the new leader's log.

        Votes may be late: a leader of a former term owes nothing that a later one has committed.
        """
        history, raft = self._history, group_of(node).raft
        last = history.last_index
        while last and history.committed_in[last - 1] >= raft.term:
            last -= 1
        with unseen(self.world):
            complete = last == 0 or history.holds(node, last)
        if not complete:
            self.world.violate(
                "leader completeness",
                f"{node} leads term {raft.term} with a log to {raft.last_index} without the committed entry "
                f"{last} of term {history.entries[last - 1].term}",
            )

    def sent(self, node: Node, message: object) -> None:
        """Remember votes and terms that leave a node."""
        if isinstance(message, VoteRequest):
            if message.pre:
                return  # a term that is only talked about
            self._vote(message.sender, message.term, message.sender)
            if message.transfer:
                self._handed_over.add((message.sender, message.term))
            else:
                self._was_asked_for(node, message)
        elif isinstance(message, VoteResponse):
            if message.granted:
                self._may_elect(node, message)
            if message.pre:
                return
            if message.granted:
                self._vote(message.sender, message.term, message.to)
        elif isinstance(message, Append | Heartbeat):
            self._vote(message.sender, message.term, message.sender)
            if isinstance(message, Heartbeat):
                self._transfer_ends(node)
        elif isinstance(message, HeartbeatResponse) and message.to == group_of(node).raft.leader_id:
            # When it came, not when the answer leaves: the disk may hold that up (a new term is saved first).
            # The lease counts from when the leader sent it.
            self._heard_ms[node.node_id] = node.loop.began_us() // 1000
        term, sender = getattr(message, "term", 0), getattr(message, "sender", -1)
        if term > self._terms.get(sender, 0):
            self._terms[sender] = term

    def _vote(self, member: int, term: int, candidate: int) -> None:
        known = self._votes.setdefault((member, term), candidate)
        if known != candidate:
            text = f"member {member}, term {term}: for {known} and {candidate}"
            self.world.violate("two votes in one term", text)

    def _may_elect(self, node: Node, response: VoteResponse) -> None:
        """Whoever heard a leader within an election timeout elects no other, also not after a restart."""
        if response.pre:
            self._pre_votes.setdefault((response.to, response.term), set()).add(response.sender)
        elif (response.to, response.term) in self._handed_over:
            return
        elif self._votes.get((response.sender, response.term)) == response.to:
            return  # the same answer once more
        # Likewise: a vote is granted when its request comes, however late the disk lets it leave.
        since_ms = node.loop.began_us() // 1000 - self._heard_ms.get(node.node_id, -(1 << 60))
        if since_ms < group_of(node).raft.settings.election_timeout_ms - CLOCK_STEP_MS:
            text = f"{node} would elect {response.to} in term {response.term}, {since_ms} ms after its leader"
            self.world.violate("a vote while a leader is heard", text)

    def _was_asked_for(self, node: Node, request: VoteRequest) -> None:
        """Whoever stands has been told by a majority that they would vote."""
        granted = {request.sender, *self._pre_votes.get((request.sender, request.term), ())}
        for voters in group_of(node).raft.configuration.voter_sets():
            if 2 * len(granted.intersection(voters)) <= len(voters):
                text = f"{node} stands in term {request.term}; of {voters} would vote {sorted(granted)}"
                self.world.violate("a term is raised without PreVote", text)

    def _transfer_ends(self, node: Node) -> None:
        raft = group_of(node).raft
        if not raft.is_transferring:
            self._transfers.pop(node, None)
            return
        now_ms = node.loop.local_us() // 1000
        term, since_ms = self._transfers.get(node, (raft.term, now_ms))
        if term != raft.term:
            since_ms = now_ms
        self._transfers[node] = raft.term, since_ms
        lasts_ms = now_ms - since_ms
        if lasts_ms > raft.settings.transfer_timeout_ms + TRANSFER_SLACK_MS and not node.paused:
            text = f"{node} leads term {raft.term} and has been handing over for {lasts_ms} ms"
            self.world.violate("a transfer ends", text)
