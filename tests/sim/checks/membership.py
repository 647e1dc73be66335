"""Configurations: one change at a time, through a joint one, never before a commit of the leader's own term.

Looked at on leaders, which alone append; what is committed is held against every node's stack. Source: Raft
paper, section 6; Ongaro's message to raft-dev of July 2015 (a change before the no-op may lose entries).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.raft import Raft
from lockstep.storage.types import FrameKind
from tests.sim.checks.history import Entry, History, group_of
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World


class Membership(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        History.of(world).listeners.append(self._committed)
        self._indexes: list[int] = []
        self._configurations: list[Configuration] = []
        """What the history has, with the indexes of the entries."""
        self._newest: dict[Node, int] = {}
        """By node: the entry of its newest configuration when it was last looked at."""

    def _committed(self, entry: Entry) -> None:
        if entry.frame.kind is FrameKind.CONFIGURATION:
            self._indexes.append(entry.frame.index)
            self._configurations.append(Configuration.decode(bytes(entry.frame.payloads[0])))

    def opened(self, node: Node) -> None:
        self._newest.pop(node, None)
        self.changed(node)

    def changed(self, node: Node) -> None:
        """Look at a leader's newest configurations, and at what each node takes for committed."""
        if group_of(node).failed is not None:
            return
        raft = group_of(node).raft
        self._is_that_of_the_history(node, raft)
        newest = raft.configurations.current_index
        before = self._newest.get(node)
        self._newest[node] = newest
        leader_state = raft.leader_state
        if leader_state is None or before is None or not leader_state.no_op_index or newest <= before:
            return
        own = raft.configurations.items_between(max(before, leader_state.no_op_index) + 1, newest)
        where = f"{node} leads term {raft.term} with commit index {raft.commit_index}: {own}"
        if own and raft.commit_index < leader_state.no_op_index:
            text = f"{where}; its no-op is {leader_state.no_op_index}"
            self.world.violate("a configuration before the no-op", text)
        if len([index for index, _ in own if index > raft.commit_index]) > 1:
            self.world.violate("two configuration changes at once", where)
        for index, becomes in own:
            was = raft.configurations.at(index - 1)
            if not allowed(was, becomes):
                text = f"{node}: entry {index} makes {becomes} of {was}"
                self.world.violate("a configuration without a joint one", text)

    def _is_that_of_the_history(self, node: Node, raft: Raft) -> None:
        at = bisect_right(self._indexes, raft.commit_index) - 1
        if at >= 0:
            found, wanted = raft.configurations.at(raft.commit_index), self._configurations[at]
            if found != wanted:
                text = f"{node} at entry {raft.commit_index}: {found}, the history has {wanted}"
                self.world.violate("configurations differ", text)


def allowed(was: Configuration, becomes: Configuration) -> bool:
    """May one configuration follow the other?"""
    if was.joint:
        return not becomes.joint and becomes.voters == was.voters
    if becomes.joint:
        return becomes.old_voters == was.voters
    return sorted(becomes.voters) == sorted(was.voters)
