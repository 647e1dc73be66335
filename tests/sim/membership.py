"""Faults of the group itself: leadership handed over, members removed, added, replaced.

Each asks the present leader, as an administrator would. A refusal, or no answer, is an answer; the change
is counted when the leader took it. A node with a new disk is another member: it has to be made one before the
next one may lose its disk, so that a majority of intact copies is always left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import StorageError
from tests.sim.faces import Unanswered
from tests.sim.network import node_of
from tests.sim.node import Node, State

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis

REFUSALS = (StorageError, Unanswered, OSError, ConfigurationRejected)


async def _as_leader(nemesis: Nemesis, what: Callable[[Node], Any]) -> bool:
    """Ask the leader; whether it did not refuse."""
    leader = nemesis.world.leader()
    if leader is None:
        return False
    try:
        await nemesis.world.ask(leader, what, 3.0)
    except REFUSALS:
        return False
    return True


def _configuration(nemesis: Nemesis) -> Any:
    leader = nemesis.world.leader()
    if leader is None or leader.group is None:
        return None
    return getattr(leader.group.raft, "configuration", None)


async def _change(nemesis: Nemesis, voters: list[int], learners: list[int]) -> str:
    def ask(node: Node) -> Any:
        group: Any = node.group
        return group.change_members(voters, learners)

    done = await _as_leader(nemesis, ask)
    return f"voters {voters} learners {learners}" if done else ""


async def transfer(nemesis: Nemesis) -> str:
    """Hand leadership to some other voter."""
    configuration, leader = _configuration(nemesis), nemesis.world.leader()
    if configuration is None or leader is None:
        return ""
    others = [member for member in configuration.voters if member != leader.member_id]
    if not others:
        return ""
    target = nemesis.random.choice(others)

    def ask(node: Node) -> Any:
        group: Any = node.group
        return group.transfer(target)

    return f"node {leader.node_id} to {node_of(target)}" if await _as_leader(nemesis, ask) else ""


def _present(nemesis: Nemesis) -> list[int]:
    """Member ids of all nodes, as they are now."""
    return [node.member_id for node in nemesis.world.nodes.values()]


def _members_now(nemesis: Nemesis) -> tuple[list[int], list[int], list[int]] | None:
    """(voters, learners, nodes outside), without members whose disk is gone; None while a change goes on."""
    configuration = _configuration(nemesis)
    if configuration is None or configuration.joint:
        return None
    present = _present(nemesis)
    voters = [m for m in configuration.voters if m in present]
    learners = [m for m in configuration.learners if m in present]
    return voters, learners, [m for m in present if m not in voters and m not in learners]


def _may_leave(nemesis: Nemesis, voters: list[int]) -> list[int]:
    """Voters that may go: a majority of the nodes stays, and no sound one goes before a damaged one."""
    if len(voters) <= nemesis.world.options.nodes // 2 + 1:
        return []
    damaged = [node.member_id for node in nemesis.world.nodes.values() if node.damaged]
    return [member for member in voters if member in damaged or not damaged]


async def remove_voter(nemesis: Nemesis) -> str:
    """Take a voter out, leader or not, or make a voter of a node that is none; a majority of nodes stays."""
    members = _members_now(nemesis)
    if members is None:
        return ""
    voters, learners, outside = members
    candidates = learners + outside
    if candidates and nemesis.random.random() < 0.6:
        chosen = nemesis.random.choice(candidates)
        return await _change(nemesis, sorted([*voters, chosen]), [m for m in learners if m != chosen])
    leaving = _may_leave(nemesis, voters)
    if not leaving:
        return ""
    voters.remove(nemesis.random.choice(leaving))
    return await _change(nemesis, voters, learners)


async def add_learner(nemesis: Nemesis) -> str:
    """Who is no member becomes a learner; else a voter is made one."""
    members = _members_now(nemesis)
    if members is None:
        return ""
    voters, learners, outside = members
    if outside:
        return await _change(nemesis, voters, sorted([*learners, nemesis.random.choice(outside)]))
    leaving = _may_leave(nemesis, voters)
    if not leaving:
        return ""
    demoted = nemesis.random.choice(leaving)
    voters.remove(demoted)
    return await _change(nemesis, voters, sorted([*learners, demoted]))


def whole(nemesis: Nemesis) -> bool:
    """Whether every node is a voter with its own disk, and that is committed: one of them may be lost."""
    leader = nemesis.world.leader()
    configuration = _configuration(nemesis)
    if leader is None or leader.group is None or configuration is None or configuration.joint:
        return False
    raft: Any = leader.group.raft
    committed = raft.configurations.current_index <= raft.commit_index
    return committed and sorted(configuration.voters) == sorted(_present(nemesis))


def replace_disk(nemesis: Nemesis) -> str:
    """A node loses its disk and comes back, empty, as a new member; first of all a damaged one."""
    world = nemesis.world
    damaged = [node for node in world.nodes.values() if node.damaged]
    if not whole(nemesis):
        return ""
    node = damaged[0] if damaged else nemesis.random.choice(list(world.nodes.values()))
    if node.state is not State.DOWN and node.state is not State.REFUSED:
        node.crash("power loss")
    node.replace_disk()
    nemesis.crashed(node)
    return f"node {node.node_id} is member {node.member_id} now"


async def restored(nemesis: Nemesis) -> bool:
    """After healing: whether all present nodes are voters; if not, see to it, as an administrator would."""
    world = nemesis.world
    configuration = _configuration(nemesis)
    if configuration is None or configuration.joint:
        return False
    wanted = sorted(n.member_id for n in world.nodes.values() if n.state is not State.REFUSED)
    if sorted(configuration.voters) == wanted and not configuration.learners:
        return True
    await _change(nemesis, wanted, [])
    return False
