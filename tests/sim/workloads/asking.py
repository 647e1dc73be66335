"""How clients reach the leader, and what they may conclude from what they hear.

Three outcomes, as for every Kafka client: done; certainly not done (`Elsewhere`, `RequestError`, raised
before anything was appended); in doubt (`InDoubt`, `Unanswered`): it may be there, or come to be. Functions
with a node as their first argument run on that node, through `World.ask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.storage.types import NotLeader, StorageError
from tests.sim.checks.history import History, group_of
from tests.sim.faces import Unanswered
from tests.sim.network import node_of

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

T = TypeVar("T")

REQUEST_TIMEOUT_S = 2.0
BACKOFF_S = 0.1


class Elsewhere(Exception):
    """This node does not lead; nothing was done. `node_id` is who does, -1 where it does not know."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"node {node_id} leads")
        self.node_id = node_id


class InDoubt(Exception):
    """Something was appended, and leadership was lost before its commit."""


class Finder:
    """Whom one client asks: the node that answered last, or was named, or any."""

    def __init__(self, world: World, purpose: str) -> None:
        self._world = world
        self._random = world.random(purpose)
        self._node_id = 0

    def guess(self) -> Node:
        """The node to ask next."""
        nodes = self._world.nodes
        if self._node_id not in nodes:
            self._node_id = self._random.choice(list(nodes))
        return nodes[self._node_id]

    def told(self, node_id: int) -> None:
        """A node has named the leader."""
        self._node_id = node_id

    def lost(self) -> None:
        """Whoever was asked did not help."""
        self._node_id = 0

    async def ask(self, function: Callable[[Node], Any]) -> Any:
        """Once, to the guessed node. Raises Elsewhere, InDoubt, Unanswered, and what the function raises."""
        try:
            return await self._world.ask(self.guess(), function, REQUEST_TIMEOUT_S)
        except Elsewhere as elsewhere:
            self.told(elsewhere.node_id)
            raise
        except (InDoubt, Unanswered):
            self.lost()
            raise

    async def insist(self, function: Callable[[Node], Any]) -> Any:
        """Ask again until it is done, for things that may be done twice."""
        while True:
            try:
                return await self.ask(function)
            except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
                await asyncio.sleep(BACKOFF_S * (0.5 + self._random.random()))


def must_lead(node: Node) -> None:
    """Raises Elsewhere where a node does not serve as the leader."""
    group = group_of(node)
    if group.failed is not None:
        raise Elsewhere(-1)
    if not group.is_leader:
        raise Elsewhere(node_of(group.leader_id) if group.leader_id >= 0 else -1)


def must_lead_alone(node: Node) -> None:
    """Raises Elsewhere unless a node leads and its lease says that nobody else does."""
    must_lead(node)
    if not group_of(node).has_lease:
        raise Elsewhere(-1)


async def commit(node: Node) -> None:
    """Wait for the commit of all that was appended on a node so far. Raises InDoubt."""
    group = group_of(node)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    history = History.of(node.world)

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            history.changed(node)  # before anybody can hear of it
            done.set_result(None)
        else:
            done.set_exception(InDoubt(str(error)))

    group.when_committed(settle)
    await done


async def run_commands(node: Node, work: Callable[[], Awaitable[T]]) -> T:
    """Something that appends and waits, as one administrator at a time does. Raises InDoubt."""
    must_lead(node)
    if node.memory.get("commanded"):
        raise Elsewhere(node.node_id)
    node.memory["commanded"] = True
    try:
        result = await work()
    except NotLeader as error:
        raise InDoubt(str(error)) from None
    finally:
        node.memory["commanded"] = False
    History.of(node.world).changed(node)
    return result


class _Request:
    """A function and what it is given besides the node; `func` names it in the trace."""

    __slots__ = ("args", "func")

    def __init__(self, func: Callable[..., Any], args: tuple[object, ...]) -> None:
        self.func = func
        self.args = args

    def __call__(self, node: Node) -> Any:
        return self.func(node, *self.args)


def on_node(function: Callable[..., Any], *args: object) -> Callable[[Node], Any]:
    """`function(node, *args)`, as `World.ask` takes it."""
    return _Request(function, args)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look again and again."""
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(BACKOFF_S)


async def at_rest(world: World) -> None:
    """Wait until every member is open and has applied everything that its leader has."""

    def rests() -> bool:
        leader = world.leader()
        if leader is None or any(node.group is None for node in world.members()):
            return False
        last = group_of(leader).log.last_index
        return all(group_of(node).applied_index == last for node in world.members())

    await until(rests)
