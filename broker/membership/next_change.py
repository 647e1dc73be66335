"""The one change to a group's members that is safe and useful now.

Invariants: silence removes nobody, only the wanted set does, or a node that says it is another member now; a
member votes only once it is up to date; one voter comes, goes or is replaced at a time; the voters after a
change have a majority that is up to date; there are fewer of them only where fewer are wanted; a leader hands
over before it goes. Whoever is to vote listens first. Whose disk is full is not chosen to lead where another
could. Does not: know time or request anything: `transfer_backoff` and `reconciler` do. Source: Raft thesis,
sections 4.2 and 6.4 of the paper (learners, joint consensus); the rules of a member's lives:
docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.broker.membership.group_view import View
from lockstep.storage.group_options import node_of


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Ask the group for these members."""

    voters: tuple[int, ...]
    learners: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """Hand the leadership to this voter."""

    member: int
    why: str


Step = ChangeMembers | Transfer


def next_step(view: View) -> Step | None:
    """Returns the next step; None where there is none, or none is possible yet."""
    if not view.settled or not view.wanted.wanted_nodes:
        return None
    return _let_in(view) or _let_go(view) or _let_listen(view)


def preferred_leader(view: View) -> int | None:
    """The member to lead by preference, if another does and it could take over without being felt."""
    wanted_nodes = view.wanted.wanted_nodes
    if (
        not view.settled
        or not view.light
        or not wanted_nodes
        or next(_joining_members(view), None) is not None
    ):
        return None
    first = wanted_nodes[0]
    if view.wanted.disks_full.get(first):
        return None
    return next((member for member in _successors(view) if node_of(member) == first), None)


def leader_with_room(view: View) -> int | None:
    """Returns the successor of a leader with a full disk: a member whose node reports free space."""
    full = view.wanted.disks_full
    if not view.settled or not full.get(node_of(view.leader)):
        return None
    return next((member for member in _successors(view) if full.get(node_of(member)) is False), None)


def printable_member(member: int) -> str:
    """A member in words: its node, and which of its lives where that is not the first."""
    life = member - node_of(member) >> 32
    return f"{node_of(member)} (incarnation {life})" if life else str(member)


# --- who is who --------------------------------------------------------------------------------------------


def _member_of(view: View, node: int) -> int | None:
    """The member that a node says it is; about ourselves nobody else is asked."""
    if node == node_of(view.leader):
        return view.leader
    return view.wanted.member_of_node.get(node)


def _is_former(view: View, member: int) -> bool:
    """Returns whether the member's node reports another member id now."""
    return _member_of(view, node_of(member)) not in (None, member)


def _stays(view: View, voter: int) -> bool:
    return node_of(voter) in view.wanted.wanted_nodes and not _is_former(view, voter)


def _joining_members(view: View) -> Iterator[int]:
    """Yields the nodes that are to become voters and can: live, with a reported member id."""
    for node in view.wanted.wanted_nodes:
        member = _member_of(view, node)
        if member is not None and member not in view.voters and node in view.wanted.alive:
            yield member


def _leaving_members(view: View) -> list[int]:
    """Voters that are to go, those first that are of least use; the leader last."""
    going = [voter for voter in view.voters if not _stays(view, voter)]
    return sorted(going, key=lambda voter: (voter == view.leader, voter in view.up_to_date, voter))


def _successors(view: View) -> Iterator[int]:
    """Voters that could lead at once and are to stay, the preferred leader first."""
    for node in view.wanted.wanted_nodes:
        for voter in view.voters:
            if node_of(voter) == node and node in view.wanted.alive and _can_lead(view, voter):
                yield voter


def _successor(view: View) -> int | None:
    """The first heir whose disk has room, else the first."""
    return min(
        _successors(view), key=lambda voter: bool(view.wanted.disks_full.get(node_of(voter))), default=None
    )


def _can_lead(view: View, voter: int) -> bool:
    return voter != view.leader and voter in view.up_to_date and _stays(view, voter)


# --- changes -----------------------------------------------------------------------------------------------


def _let_in(view: View) -> Step | None:
    """A learner that is up to date becomes a voter, in place of one that is to go where there is one."""
    for member in _joining_members(view):
        if member not in view.learners or member not in view.up_to_date:
            continue
        old = _place_for(view, member)
        successor = _successor(view)
        if old == view.leader and successor is not None:
            return _transfer_to(view, successor)
        if old is None or old == view.leader:  # with nobody to lead instead, one more votes for a while
            change = _change(view, (*view.voters, member), f"{printable_member(member)} has caught up")
        else:
            voters = [member if voter == old else voter for voter in view.voters]
            change = _change(
                view, voters, f"{printable_member(member)} has caught up and replaces {printable_member(old)}"
            )
        if change is not None:
            return change
    return None


def _place_for(view: View, member: int) -> int | None:
    """The voter that this one replaces: its node's former member, or any that is to go if none is missing."""
    former = [voter for voter in view.voters if node_of(voter) == node_of(member)]
    if not former and len(view.voters) >= len(view.wanted.wanted_nodes):
        former = _leaving_members(view)
    return former[0] if former else None


def _let_go(view: View) -> Step | None:
    """A voter goes where there are more than are wanted."""
    if len(view.voters) <= len(view.wanted.wanted_nodes):
        return None
    for old in _leaving_members(view):
        if old == view.leader:
            successor = _successor(view)
            return None if successor is None else _transfer_to(view, successor)
        voters = [voter for voter in view.voters if voter != old]
        change = _change(view, voters, f"{printable_member(old)} is not to vote any more")
        if change is not None:
            return change
    return None


def _let_listen(view: View) -> Step | None:
    """Learners come and go; that moves no majority, so all of them at once."""
    learners = _learners(view, view.voters)
    if set(learners) == set(view.learners):
        return None
    return ChangeMembers(view.voters, learners, "who listens has changed")


def _transfer_to(view: View, successor: int) -> Transfer:
    return Transfer(successor, f"{printable_member(view.leader)} is not to vote any more")


def _change(view: View, voters: Sequence[int], why: str) -> ChangeMembers | None:
    """None where the new voters would have no majority to rest on."""
    if 2 * sum(voter in view.up_to_date for voter in voters) <= len(voters):
        return None
    return ChangeMembers(tuple(sorted(voters)), _learners(view, voters), why)


def _learners(view: View, voters: Sequence[int]) -> tuple[int, ...]:
    """Returns the learners beside these voters: desired learners, and voters of later."""
    wanted = view.wanted
    nodes = {*wanted.wanted_nodes, *wanted.learner_nodes}
    learners = {
        member
        for member in (*view.learners, *view.voters)
        if node_of(member) in nodes and not _is_former(view, member)
    }
    for node in nodes & set(wanted.alive):
        member = _member_of(view, node)
        if member is not None:
            learners.add(member)
    return tuple(sorted(learners - set(voters)))
