"""What has been said is on the disk: votes, acknowledged entries, commits; and what was committed stays.

Votes are looked up in the durable bytes of the state file each time one leaves. Opening a whole durable image
takes milliseconds, so acknowledgements and commits are drawn: a few of each per run. A node whose disk has
rotted must not take part with less than it had either: it refuses, or is another member. What the former
member had cannot be looked up any more, but its last acknowledgements may still be on their way: they count.
Source: Ongaro's thesis, section 3.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.state_file import SLOT_BYTES, STATE_NAME, LogState, decode_slot
from lockstep.storage.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.state import LeaderState
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState, StorageError
from tests.sim.checks.history import Entry, History, group_of, unseen
from tests.sim.faces import Check
from tests.sim.joining import GROUP_ID, log_options
from tests.sim.network import node_of
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

MOST_IMAGES = 8
"""Durable images opened per run, of acknowledgements and of commits each."""
ONE_IN = 40


class Durability(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self._random = world.random("durability")
        self._images = [MOST_IMAGES, MOST_IMAGES]
        self._commits: dict[int, int] = {}
        """By member: the highest entry it had committed and flushed, in any life."""
        self._matches: dict[tuple[Node, int], int] = {}
        """By leader and member: the match index that was looked at."""
        self._followed: dict[Node, tuple[bool, int]] = {}
        """By node: whether it was no leader when it was last looked at, and its commit index."""
        self._spoken: set[tuple[int, int]] = set()
        """(member, term) whose leader's hard state has been looked up."""
        self._said: dict[tuple[int, int], int] = {}
        """By member and term: the highest entry that it has acknowledged."""

    # --- what must not go ---------------------------------------------------------------------------------

    def opened(self, node: Node) -> None:
        """A restart may lose what was not flushed, and nothing else."""
        self._followed.pop(node, None)
        self.changed(node)

    def changed(self, node: Node) -> None:
        """Remember what a node has committed and flushed; its log may never again end before that.

        A leader may commit what its own disk lags behind with; a follower may not.
        """
        group = group_of(node)
        if group.failed is not None:
            return
        raft = group.raft
        if raft.leader_state is not None:
            self._matches_are_held(node, raft, raft.leader_state)
        known = self._commits.get(raft.member_id, 0)
        settled = min(raft.commit_index, raft.persisted_index)
        if settled > known:
            self._commits[raft.member_id] = settled
        elif raft.last_index < known:
            text = f"{node} had committed {known}, its log ends at {raft.last_index} (life {node.life})"
            self.world.violate("a committed entry is gone", text)
        followed, commit = self._followed.get(node, (False, 0))
        follows = raft.role is not Role.LEADER
        self._followed[node] = follows, raft.commit_index
        if followed and follows and raft.commit_index > max(commit, group.log.flushed_index):
            text = f"{node} follows and commits {raft.commit_index}; flushed is {group.log.flushed_index}"
            self.world.violate("a follower commits what it has not flushed", text)

    def _matches_are_held(self, node: Node, raft: Raft, leader_state: LeaderState) -> None:
        """What a leader counts for another member that is in its term is in that member's log."""
        for member, progress in leader_state.progress.items():
            match_index = progress.match_index
            if self._matches.get((node, member), 0) == match_index:
                continue
            self._matches[node, member] = match_index
            other = self.world.nodes.get(node_of(member))
            if other is None or other.group is None:
                continue
            peer = other.group.raft
            if peer.member_id != member or peer.term != raft.term or match_index < raft.terms.base_index:
                continue
            with unseen(self.world):
                found = other.group.log.chain_at(match_index)
                wanted = group_of(node).log.chain_at(match_index)
            sound = not (node.damaged or other.damaged)  # what has rotted says nothing of what was matched
            differ = sound and None not in (found, wanted) and found != wanted
            if peer.last_index < match_index or differ:
                text = f"{node} counts {match_index} for {other}, whose log ends at {peer.last_index}"
                self.world.violate("a match that is none", f"{text}; chain values {wanted} and {found}")

    # --- what must be there -------------------------------------------------------------------------------

    def sent(self, node: Node, message: object) -> None:
        """Is on the disk what this message rests on?"""
        if isinstance(message, VoteRequest | VoteResponse):
            if message.pre or (isinstance(message, VoteResponse) and not message.granted):
                return
            candidate = message.sender if isinstance(message, VoteRequest) else message.to
            self._vote_is_flushed(node, message.term, candidate)
        elif isinstance(message, Append | Heartbeat):
            if (message.sender, message.term) not in self._spoken:
                self._spoken.add((message.sender, message.term))
                self._vote_is_flushed(node, message.term, message.sender)
        elif isinstance(message, AppendResponse | HeartbeatResponse) and message.match_index > 0:
            said = message.sender, message.term
            self._said[said] = max(self._said.get(said, 0), message.match_index)
            if isinstance(message, AppendResponse):
                self._acknowledged(node, message.match_index)

    def _vote_is_flushed(self, node: Node, term: int, candidate: int) -> None:
        found = durable_hard_state(node)
        if found is None or (found.term, found.voted_for) != (term, candidate):
            text = f"{node} speaks in term {term} with a vote for {candidate}; on its disk is {found}"
            self.world.violate("a vote that is not on the disk", text)

    def _acknowledged(self, node: Node, index: int) -> None:
        flushed = group_of(node).log.flushed_index
        if index > flushed:
            text = f"{node} acknowledges entry {index}; its log says that it has flushed {flushed}"
            self.world.violate("an acknowledged entry that is not on the disk", text)
        if self._images[0] == 0 or self._random.randrange(ONE_IN):
            return
        self._images[0] -= 1
        last, chain = durable_end(node, index)
        if last < 0 and node.damaged:
            return  # nobody can open it any more
        expected = group_of(node).log.chain_at(index)
        if last < index or (None not in (chain, expected) and chain != expected):
            text = f"{node} acknowledges entry {index}; flushed on its disk is {last}"
            self.world.violate("an acknowledged entry that is not on the disk", text)

    def _committed(self, entry: Entry) -> None:
        if self._images[1] == 0 or self._random.randrange(ONE_IN):
            return
        self._images[1] -= 1
        leader = self.world.leader()
        if leader is None:
            return
        index = entry.frame.index
        configuration = group_of(leader).raft.configuration
        present = set()
        holding = set()
        for node in self.world.nodes.values():
            last, chain = durable_end(node, index)
            hard_state = durable_hard_state(node)
            held = (last >= index and chain in (None, entry.chain)) or (last < 0 and node.damaged)
            member = node.member_id
            if hard_state is not None:
                member = node.node_id | hard_state.incarnation << 32
            present.add(member)
            if hard_state is not None and held:
                holding.add(member)
        for (member, term), said in self._said.items():
            if member not in present and term >= entry.term and said >= index:
                holding.add(member)  # its disk is gone
        for voters in configuration.voter_sets():
            if 2 * len(holding.intersection(voters)) <= len(voters):
                text = f"entry {index} of term {entry.term} is on the disks of {sorted(holding)} of {voters}"
                self.world.violate("committed without a majority of disks", text)


def durable_hard_state(node: Node) -> HardState | None:
    """The vote that would be found after a power loss now."""
    data = node.disk.durable().get(STATE_NAME, b"")
    slots = [decode_slot(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    whole: list[tuple[int, LogState]] = [(slot[2], slot[3]) for slot in slots if slot is not None]
    return max(whole, key=lambda pair: pair[0])[1].hard if whole else None


def durable_end(node: Node, index: int) -> tuple[int, int | None]:
    """Where the log would end after a power loss now (-1: it does not open), its chain value at an index."""
    files = SimulatedFileSystem(Image(dict(node.disk.durable())))
    try:
        log = DataLog.open(Path("durable"), GROUP_ID, log_options(node), files)
    except (StorageError, OSError):
        return -1, None
    try:
        return log.last_index, log.chain_at(index)
    finally:
        log.close()
