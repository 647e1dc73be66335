"""Leases: while a leader believes that it alone may answer, nobody else has committed anything; and after
that no majority answers it any more.

Looked at in the moment in which somebody commits in a newer term, and whenever a leader changes, so a
violation needs no client that happens to ask just then. Source: Ongaro's thesis, section 6.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checks.history import Entry, History, group_of
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World


class Leases(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self._newest = 0
        self._deposed_ms: dict[tuple[Node, int], int] = {}
        """(node, its term) -> when a newer one was known to have committed, by its own clock."""

    def _committed(self, entry: Entry) -> None:
        if entry.term > self._newest:
            self._newest = entry.term
            for node in self.world.running():
                self.changed(node)

    def changed(self, node: Node) -> None:
        """Does an old leader hold a lease, or hear answers, that it should not?"""
        raft = group_of(node).raft
        if raft.term >= self._newest or group_of(node).failed is not None:
            return
        now_ms = node.loop.local_us() // 1000
        if raft.has_lease(now_ms):
            self.world.violate(
                "a lease beside a newer leader",
                f"{node} holds the lease of term {raft.term}, an entry of term {self._newest} is committed",
            )
        if raft.contact_ms(now_ms) > self._deposed_ms.setdefault((node, raft.term), now_ms):
            self.world.violate(
                "an answer beside a newer leader",
                f"a majority answers {node} in term {raft.term}, {self._newest} has an entry committed",
            )
