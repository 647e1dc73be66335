"""Brings one log group's members to the desired ones, on the node that leads the group.

Owns: the timer, and the log lines. Invariants: acts only while the group is led here; takes one step at a
time; a step that the group rejects is tried again later, if it is still right then. Where the group is not
led, and in a group of one member that no other is to join, no timer runs. Does not: decide (`next_change`,
`transfer_backoff`) or know the desired members: its owner does, and calls `reconcile` when they change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lockstep.broker.membership.group_view import DesiredMembers, GroupView, observe
from lockstep.broker.membership.next_change import (
    ChangeMembers,
    Transfer,
    healthier_leader,
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

RECONCILE_SECONDS = 0.5
"""Nodes report their status this often; a shorter interval would find nothing new."""


class TransferRejected(Exception):
    """Leadership cannot be transferred there now; the text has the reason."""


class Reconciler:
    """One group's members and leader.

    Args:
        desired_members: returns the desired members of the group, and the state of the nodes.
        balance: whether leadership returns to the preferred leader by itself.
        monotonic: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        group: LogGroup,
        desired: Callable[[], DesiredMembers],
        loop: asyncio.AbstractEventLoop,
        *,
        balance: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] | None = None,
        interval_seconds: float = RECONCILE_SECONDS,
    ) -> None:
        self._group = group
        self._desired_members = desired
        self._loop = loop
        self._balance = balance
        self._monotonic = loop.time if monotonic is None else monotonic
        self._interval_seconds = interval_seconds
        self._backoff = TransferBackoff()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._reconciling = False
        self._is_single_member = False
        """Whether this is a group of one member that no other is to join: time changes nothing there."""

    def start(self) -> None:
        """Reconciles from now on, while the group is led here."""
        self._running = True
        self._group.on_leading.append(self._on_leading)
        self.reconcile()

    def stop(self) -> None:
        """Takes no further step; one under way continues in the group."""
        if self._running:
            self._running = False
            self._group.on_leading.remove(self._on_leading)
            self._stop_timer()

    def reconcile(self) -> None:
        """Takes the next step, if there is one. Also called when the desired members or the nodes' state
        change."""
        if not self._running or self._reconciling or not self._group.is_leader:
            return
        self._reconciling, self._is_single_member = True, False
        try:
            self._take_step()
        except (ConfigurationRejected, NotLeader) as rejection:
            log.debug("log group %d: the step is rejected: %s", self._group.group_id, rejection)
        finally:
            self._reconciling = False
            if self._timer is None and not self._is_single_member:
                self._timer = self._loop.call_later(self._interval_seconds, self._on_timer)

    # --- an operator's transfer ---------------------------------------------------------------------------

    def transfer_to(self, node_id: int) -> None:
        """Begins to transfer the leadership to a node; does nothing where it leads already.

        Raises NotLeader where the group is not led here, TransferRejected where the node is no voter, not
        alive, not up to date, full or without some records, or where another change is under way.
        """
        view = observe(self._group.raft, self._desired_members()) if self._group.is_leader else None
        if view is None:
            raise NotLeader(f"group {self._group.group_id} is not led here")
        if node_id == node_of(view.leader):
            return
        member = _voter_of(view, node_id)
        if member not in view.up_to_date:
            raise TransferRejected(f"node {node_id} has not caught up with group {self._group.group_id}")
        if view.desired.unwritable.get(node_id):
            raise TransferRejected(f"the disk of node {node_id} is full or cannot be written")
        if node_id in view.desired.incomplete and node_of(view.leader) not in view.desired.incomplete:
            group_id = self._group.group_id
            raise TransferRejected(f"records of group {group_id} are missing or damaged at node {node_id}")
        try:
            self._transfer(member, "as was requested")
        except ConfigurationRejected as rejection:
            raise TransferRejected(f"group {self._group.group_id}: {rejection}") from rejection

    # --- steps --------------------------------------------------------------------------------------------

    def _take_step(self) -> None:
        now_ms = int(self._monotonic() * 1000)
        view = observe(self._group.raft, self._desired_members())
        if view is None:
            return
        voter_nodes = {*view.desired.voter_nodes, *view.desired.learner_nodes}
        self._is_single_member = self._group.raft.alone and voter_nodes <= {node_of(view.leader)}
        # First: the entry of a change of members may find no disk space here, and consumers get errors.
        if self._backoff.is_over(now_ms) and (transfer := healthier_leader(view)) is not None:
            self._transfer(transfer.member, transfer.reason)
            return
        step = next_step(view)
        if isinstance(step, ChangeMembers):
            self._group.change_members(step.voters, step.learners)
            self._log_change(step)
        elif isinstance(step, Transfer):
            if self._backoff.is_over(now_ms):
                self._transfer(step.member, step.reason)
        else:
            self._balance_leader(view, now_ms)

    def _balance_leader(self, view: GroupView, now_ms: int) -> None:
        candidate = preferred_leader(view) if self._balance() else None
        if self._backoff.is_steady(candidate, now_ms) and self._backoff.is_over(now_ms):
            assert candidate is not None
            self._transfer(candidate, "it is the preferred leader")

    def _transfer(self, member: int, reason: str) -> None:
        self._group.transfer(member)
        self._backoff.on_transfer(int(self._monotonic() * 1000))
        log.info(
            "log group %d: the leadership is transferred to node %s: %s",
            self._group.group_id,
            printable_member(member),
            reason,
        )

    def _log_change(self, change: ChangeMembers) -> None:
        log.info(
            "log group %d: voters become %s, learners %s: %s",
            self._group.group_id,
            ", ".join(map(printable_member, change.voters)),
            ", ".join(map(printable_member, change.learners)) or "none",
            change.reason,
        )

    def _on_leading(self, leading: bool) -> None:
        if leading:
            self.reconcile()
        else:
            self._stop_timer()

    def _on_timer(self) -> None:
        self._timer = None
        self.reconcile()

    def _stop_timer(self) -> None:
        """The group is not led here now: the candidate's time begins again."""
        self._backoff.is_steady(None, int(self._monotonic() * 1000))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _voter_of(view: GroupView, node_id: int) -> int:
    """The node's voter, if the node lives. Raises TransferRejected."""
    for voter in view.voters:
        if node_of(voter) == node_id:
            if node_id not in view.desired.alive:
                raise TransferRejected(f"node {node_id} has no recent status")
            return voter
    raise TransferRejected(f"node {node_id} is no voter of the group")
