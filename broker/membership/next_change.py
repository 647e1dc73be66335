"""The one change to a group's members that is safe and useful now.

Invariants: a missing status removes no member, only the desired members do, or a node that reports another
member id; a member votes only once it is up to date; one voter is added, removed or replaced at a time; the
voters after a change have a majority that is up to date; there are fewer of them only where fewer are
desired; a leader transfers its leadership before it is removed. A future voter is a learner first. A node
with a full disk, or one with missing or damaged records, does not become the leader where another could. Does
not: know time or request anything: `transfer_backoff` and `reconciler` do. Source: Raft thesis, sections 4.2
and 6.4 of the paper (learners, joint consensus); the rules of a member's incarnations: docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.broker.membership.group_view import GroupView
from lockstep.storage.group_options import node_of


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Change the group to these members."""

    voters: tuple[int, ...]
    learners: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer the leadership to this voter."""

    member: int
    reason: str


Step = ChangeMembers | Transfer


def next_step(view: GroupView) -> Step | None:
    """Returns the next step; None where there is none, or none is possible yet."""
    if not view.no_change_pending or not view.desired.voter_nodes:
        return None
    return _promote_learner(view) or _remove_voter(view) or _update_learners(view)


def preferred_leader(view: GroupView) -> int | None:
    """Returns the preferred leader's member, if it does not lead and could take over without delaying
    clients."""
    voter_nodes = view.desired.voter_nodes
    if (
        not view.no_change_pending
        or not view.is_nearly_committed
        or not voter_nodes
        or next(_joining_members(view), None) is not None
    ):
        return None
    first = voter_nodes[0]
    if view.desired.unwritable.get(first) or first in view.desired.incomplete:
        return None
    return next((member for member in _successors(view) if node_of(member) == first), None)


def healthier_leader(view: GroupView) -> Transfer | None:
    """Returns the transfer away from a leader that cannot write, or else from one with missing or damaged
    records: to a member whose node reports that it can write, and in the second case that it has all."""
    if not view.no_change_pending:
        return None
    node, desired = node_of(view.leader), view.desired
    if desired.unwritable.get(node):
        with_room = (each for each in _successors(view) if desired.unwritable.get(node_of(each)) is False)
        successor = min(with_room, key=lambda each: node_of(each) in desired.incomplete, default=None)
        if successor is not None:
            return Transfer(successor, f"the disk of node {node} is full")
    if node in desired.incomplete:
        unfit = desired.incomplete | {each for each, full in desired.unwritable.items() if full}
        successor = next((each for each in _successors(view) if node_of(each) not in unfit), None)
        if successor is not None:
            return Transfer(successor, f"records are missing or damaged at node {node}")
    return None


def printable_member(member: int) -> str:
    """A member in words: its node, and its incarnation where that is not the first."""
    life = member - node_of(member) >> 32
    return f"{node_of(member)} (incarnation {life})" if life else str(member)


# --- members -----------------------------------------------------------------------------------------------


def _member_of(view: GroupView, node: int) -> int | None:
    """The member id that a node reports; this node knows its own."""
    if node == node_of(view.leader):
        return view.leader
    return view.desired.member_of_node.get(node)


def _is_former(view: GroupView, member: int) -> bool:
    """Returns whether the member's node reports another member id now."""
    return _member_of(view, node_of(member)) not in (None, member)


def _stays(view: GroupView, voter: int) -> bool:
    return node_of(voter) in view.desired.voter_nodes and not _is_former(view, voter)


def _joining_members(view: GroupView) -> Iterator[int]:
    """Yields the nodes that are to become voters and can: live, with a reported member id."""
    for node in view.desired.voter_nodes:
        member = _member_of(view, node)
        if member is not None and member not in view.voters and node in view.desired.alive:
            yield member


def _leaving_members(view: GroupView) -> list[int]:
    """Voters to be removed: those that are not up to date first, the leader last."""
    going = [voter for voter in view.voters if not _stays(view, voter)]
    return sorted(going, key=lambda voter: (voter == view.leader, voter in view.up_to_date, voter))


def _successors(view: GroupView) -> Iterator[int]:
    """Voters that could lead at once and are to stay, the preferred leader first."""
    for node in view.desired.voter_nodes:
        for voter in view.voters:
            if node_of(voter) == node and node in view.desired.alive and _can_lead(view, voter):
                yield voter


def _successor(view: GroupView) -> int | None:
    """Returns the first successor that can write and has no missing records, else one that can write, else
    the first."""
    desired = view.desired

    def shortcomings(voter: int) -> tuple[bool, bool]:
        node = node_of(voter)
        return bool(desired.unwritable.get(node)), node in desired.incomplete

    return min(_successors(view), key=shortcomings, default=None)


def _can_lead(view: GroupView, voter: int) -> bool:
    return voter != view.leader and voter in view.up_to_date and _stays(view, voter)


# --- changes -----------------------------------------------------------------------------------------------


def _promote_learner(view: GroupView) -> Step | None:
    """Promotes a learner that is up to date to a voter, in place of one to be removed if there is one."""
    for member in _joining_members(view):
        if member not in view.learners or member not in view.up_to_date:
            continue
        old = _replaced_voter(view, member)
        successor = _successor(view)
        if old == view.leader and successor is not None:
            return _transfer_to(view, successor)
        if old is None or old == view.leader:  # without a successor, there is one more voter for a while
            change = _change(view, (*view.voters, member), f"{printable_member(member)} has caught up")
        else:
            voters = [member if voter == old else voter for voter in view.voters]
            change = _change(
                view, voters, f"{printable_member(member)} has caught up and replaces {printable_member(old)}"
            )
        if change is not None:
            return change
    return None


def _replaced_voter(view: GroupView, member: int) -> int | None:
    """The voter that this one replaces: its node's former member, or any to be removed if none is missing."""
    former = [voter for voter in view.voters if node_of(voter) == node_of(member)]
    if not former and len(view.voters) >= len(view.desired.voter_nodes):
        former = _leaving_members(view)
    return former[0] if former else None


def _remove_voter(view: GroupView) -> Step | None:
    """Removes a voter where there are more than are desired."""
    if len(view.voters) <= len(view.desired.voter_nodes):
        return None
    for old in _leaving_members(view):
        if old == view.leader:
            successor = _successor(view)
            return None if successor is None else _transfer_to(view, successor)
        voters = [voter for voter in view.voters if voter != old]
        change = _change(view, voters, f"{printable_member(old)} is no longer a desired voter")
        if change is not None:
            return change
    return None


def _update_learners(view: GroupView) -> Step | None:
    """Adds and removes learners; that changes no majority, so all of them at once."""
    learners = _learners(view, view.voters)
    if set(learners) == set(view.learners):
        return None
    return ChangeMembers(view.voters, learners, "the desired learners have changed")


def _transfer_to(view: GroupView, successor: int) -> Transfer:
    return Transfer(successor, f"{printable_member(view.leader)} is no longer a desired voter")


def _change(view: GroupView, voters: Sequence[int], reason: str) -> ChangeMembers | None:
    """Returns the change; None where the new voters would have no majority that is up to date."""
    if 2 * sum(voter in view.up_to_date for voter in voters) <= len(voters):
        return None
    return ChangeMembers(tuple(sorted(voters)), _learners(view, voters), reason)


def _learners(view: GroupView, voters: Sequence[int]) -> tuple[int, ...]:
    """Returns the learners beside these voters: desired learners, and future voters."""
    desired = view.desired
    nodes = {*desired.voter_nodes, *desired.learner_nodes}
    learners = {
        member
        for member in (*view.learners, *view.voters)
        if node_of(member) in nodes and not _is_former(view, member)
    }
    for node in nodes & set(desired.alive):
        member = _member_of(view, node)
        if member is not None:
            learners.add(member)
    return tuple(sorted(learners - set(voters)))
