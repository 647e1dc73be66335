"""What workloads, checks and plants are. The world calls these; nothing here has behaviour of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from lockstep.storage.types import StateMachine

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World


class Violation(AssertionError):
    """A rule was broken; the run ends. `rule` is its short name, the same for every way to break it."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text


class Unanswered(Exception):
    """`World.ask` got no answer: the node is down, crashed, or too slow. What was asked may have happened."""


@dataclass
class Machines:
    """The arguments of `LogGroup.open` for one life of one node."""

    commit: Mapping[bytes, tuple[str, StateMachine]] = field(default_factory=dict)
    """Topic id to (checkpoint section, machine)."""
    tail: Mapping[str, StateMachine] = field(default_factory=dict)
    """Checkpoint section to machine."""


class Check:
    """A rule over the whole world. Hooks only look; they call `world.violate` where the rule is broken."""

    def __init__(self, world: World) -> None:
        self.world = world

    def opened(self, node: Node) -> None:
        """The node recovered its group: `node.group` is open."""

    def changed(self, node: Node) -> None:
        """Term, role, commit index or last index of the group moved in the callback that just ended."""

    def sent(self, node: Node, message: object) -> None:
        """The node hands a peer message to the network (whatever becomes of it there)."""

    def crashed(self, node: Node, how: str) -> None:
        """The node is gone ("kill", "power loss", "stopped: ..."); its disk is what the next life finds."""

    def healed(self) -> None:
        """No more faults from now on: the liveness phase begins."""

    def finished(self) -> None:
        """`settle` has returned: everything is at rest, all nodes (but refused ones) are open."""


class Workload:
    """Client actors, and the state machines of the group they use."""

    name: ClassVar[str]
    overrides: ClassVar[Mapping[str, object]] = {}
    """Options this workload fixes (see options.py)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def machines(self, node: Node) -> Machines:
        """Fresh machines for the life of `node` that begins now."""
        return Machines()

    def opened(self, node: Node) -> None:
        """The node's group is open. Called on its loop (which is running), before any client reaches it."""

    def checks(self) -> Sequence[Check]:
        """Rules of this workload, made once."""
        return ()

    async def client(self, number: int) -> None:
        """Actor `number` of `options.clients`: works while `world.working`, then returns."""
        raise NotImplementedError

    async def safety_phase(self) -> None:
        """The time in which the clients work and faults happen."""
        await asyncio.sleep(self.world.options.safety_s)

    async def write_on(self) -> None:
        """After healing: something more is written, as long as somebody waits for the log to go on."""

    async def settle(self) -> None:
        """After healing: return once everything acknowledged can be read on all of `world.members()`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plant:
    """A fault planted in the product for the time of one run."""

    name: str
    what: str
    """One line for `--list-plants`."""
    apply: Callable[[], AbstractContextManager[object]]
    """Patches the product while entered."""
    workload: str | None = None
    """The workload that shows it best; None: the drawn one."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Options under which it shows."""
    rules: tuple[str, ...] = ()
    """Rules that may report it; empty: any."""
    source: str = ""
    """Where it comes from: an issue of another system, a paper, a rule (docs/sources.md says which)."""
