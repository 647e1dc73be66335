"""Brings one log group's members to the desired ones, on the node that leads the group.

Owns: the timer, and the words in the log. Invariants: acts only while the group is led here; asks for one
thing at a time; what the group refuses is asked for again later, if it is still right then. Where the group
is not led, and in a group of one that nobody else is to join, no timer runs. Does not: decide (`next_change`,
`transfer_backoff`) or know the desired members: its owner does, and calls `look` when they change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lockstep.broker.membership.group_view import DesiredMembers, View, view_of
from lockstep.broker.membership.next_change import (
    ChangeMembers,
    Transfer,
    leader_with_room,
    next_step,
    preferred_leader,
    printable_member,
)
from lockstep.broker.membership.transfer_backoff import TransferBackoff
from lockstep.storage.group_options import node_of
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import NotLeader

log = logging.getLogger("lockstep.membership")

LOOK_SECONDS = 0.5
"""Nodes say this often how they are; looking more often would see nothing new."""


class TransferRejected(Exception):
    """Leadership cannot go there now; the text says why."""


class Reconciler:
    """One group's members and leader.

    Args:
        wanted: who should be in the group, and what is known of the nodes; asked with each look.
        balance: whether leadership returns to the preferred leader by itself.
        seconds: a monotonic clock.
    """

    def __init__(
        self,
        group: LogGroup,
        wanted: Callable[[], DesiredMembers],
        loop: asyncio.AbstractEventLoop,
        *,
        balance: Callable[[], bool] = lambda: True,
        seconds: Callable[[], float] | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._group = group
        self._wanted = wanted
        self._loop = loop
        self._balance = balance
        self._seconds = loop.time if seconds is None else seconds
        self._look_seconds = look_seconds
        self._backoff = TransferBackoff()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._looking = False
        self._alone = False
        """Whether this is a group of one that nobody is to join: time changes nothing there."""

    def start(self) -> None:
        """Look from now on, whenever the group is led here."""
        self._running = True
        self._group.on_leading.append(self._on_leading)
        self.look()

    def stop(self) -> None:
        """Ask for nothing more; what was asked for goes on in the group."""
        if self._running:
            self._running = False
            self._group.on_leading.remove(self._on_leading)
            self._rest()

    def look(self) -> None:
        """Do what is to be done now. To be called when what is wanted or known has changed, too."""
        if not self._running or self._looking or not self._group.is_leader:
            return
        self._looking, self._alone = True, False
        try:
            self._act()
        except (ConfigurationRejected, NotLeader) as refused:
            log.debug("log group %d: not now: %s", self._group.group_id, refused)
        finally:
            self._looking = False
            if self._timer is None and not self._alone:
                self._timer = self._loop.call_later(self._look_seconds, self._again)

    # --- on somebody's word -------------------------------------------------------------------------------

    def transfer_to(self, node_id: int) -> None:
        """Begin to hand the leadership to a node; nothing where it leads already.

        Raises NotLeader where the group is not led here, TransferRejected where the node is no voter, not
        alive, behind or full, or where something else is under way.
        """
        view = view_of(self._group.raft, self._wanted()) if self._group.is_leader else None
        if view is None:
            raise NotLeader(f"group {self._group.group_id} is not led here")
        if node_id == node_of(view.leader):
            return
        member = _voter(view, node_id)
        if member not in view.up_to_date:
            raise TransferRejected(f"node {node_id} has not caught up with group {self._group.group_id}")
        if view.wanted.disks_full.get(node_id):
            raise TransferRejected(f"the disk of node {node_id} is full")
        try:
            self._hand_over(member, "as was asked for")
        except ConfigurationRejected as refused:
            raise TransferRejected(f"group {self._group.group_id}: {refused}") from refused

    # --- looking ------------------------------------------------------------------------------------------

    def _act(self) -> None:
        now_ms = int(self._seconds() * 1000)
        view = view_of(self._group.raft, self._wanted())
        if view is None:
            return
        wanted_nodes = {*view.wanted.wanted_nodes, *view.wanted.learner_nodes}
        self._alone = self._group.raft.alone and wanted_nodes <= {node_of(view.leader)}
        successor = leader_with_room(view)
        if successor is not None and self._backoff.is_over(now_ms):
            # Before all else: what is to be written here for a change of members may find no room.
            self._hand_over(successor, f"the disk of node {node_of(view.leader)} is full")
            return
        step = next_step(view)
        if isinstance(step, ChangeMembers):
            self._group.change_members(step.voters, step.learners)
            self._log_change(step)
        elif isinstance(step, Transfer):
            if self._backoff.is_over(now_ms):
                self._hand_over(step.member, step.why)
        else:
            self._balance_leader(view, now_ms)

    def _balance_leader(self, view: View, now_ms: int) -> None:
        candidate = preferred_leader(view) if self._balance() else None
        if self._backoff.steady(candidate, now_ms) and self._backoff.is_over(now_ms):
            assert candidate is not None
            self._hand_over(candidate, "it is the preferred leader")

    def _hand_over(self, member: int, why: str) -> None:
        self._group.transfer(member)
        self._backoff.on_transfer(int(self._seconds() * 1000))
        log.info(
            "log group %d: the leadership goes to node %s: %s",
            self._group.group_id,
            printable_member(member),
            why,
        )

    def _log_change(self, change: ChangeMembers) -> None:
        log.info(
            "log group %d: voters become %s, learners %s: %s",
            self._group.group_id,
            ", ".join(map(printable_member, change.voters)),
            ", ".join(map(printable_member, change.learners)) or "none",
            change.why,
        )

    def _on_leading(self, leading: bool) -> None:
        if leading:
            self.look()
        else:
            self._rest()

    def _again(self) -> None:
        self._timer = None
        self.look()

    def _rest(self) -> None:
        """The group is not led here now; what was seen of the others is of no use any more."""
        self._backoff.steady(None, int(self._seconds() * 1000))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _voter(view: View, node_id: int) -> int:
    """The node's voter, if the node lives. Raises TransferRejected."""
    for voter in view.voters:
        if node_of(voter) == node_id:
            if node_id not in view.wanted.alive:
                raise TransferRejected(f"node {node_id} has not been heard of lately")
            return voter
    raise TransferRejected(f"node {node_id} is no voter of the group")
