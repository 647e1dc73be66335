"""One node of a world: its disk lives on, everything else is of one life, from a start to a crash.

Owns how the real `LogGroup` is opened on the node's loop and disk, what reaches it (messages, clients'
requests), and when the node ends: killed, cut in the middle of a disk operation, or stopped by the product
itself, which is right after an injected disk fault and a violation otherwise.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.messages import Message
from lockstep.storage.types import CorruptLog, StorageError
from tests.sim import joining
from tests.sim.clocks import EPOCH_MS
from tests.sim.disk import Disk, PowerCut
from tests.sim.disk_faults import DiskFaults
from tests.sim.faces import Machines, Unanswered
from tests.sim.loop import Handle, new_loop
from tests.sim.network import digest, frozen, node_of
from tests.sim.trace import label

if TYPE_CHECKING:
    from tests.sim.world import World

DIRECTORY = Path("node")
START_US = 20_000
"""What starting a process takes, at least."""


KEEP_S = 2.0
"""How often a node does what the broker does now and then."""


def _at_once(_: int) -> None:
    """Scrubbing without pauses."""


class State(Enum):
    """Where a node is in its life."""

    DOWN = "down"
    STARTING = "starting"
    OPEN = "open"
    REFUSED = "refused"
    """It found its disk damaged and says so: right, where the disk was damaged."""


class Node:
    """See the module. `group`, `machines`, `memory` and `loop` are of the present life."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        options = world.options
        random = world.random(f"disk {node_id}")
        self.faults = DiskFaults(random, options.flush_us, options.cold_reads)
        self.faults.cut = PowerCut()
        self.faults.stale_cache = options.stale_cache
        self.disk = Disk(random, self.faults, self._charge, self._running)
        self._draw = world.random(f"raft {node_id}").randrange
        drift = options.drift_ppm
        clock = world.random(f"clock {node_id}")
        self._rate_ppm = 1_000_000 + clock.randint(-drift, drift)
        self._wall_offset_ms = clock.randint(-50, 50)
        self._monotonic_offset_us = clock.randrange(1 << 40)
        self.state = State.DOWN
        self.life = 0
        self.incarnation = 0
        self.damaged = False
        """Its disk was damaged since it was new."""
        self.salvage = False
        """It refused its disk: the next life makes do with what is whole."""
        self.rotten = False
        """Its disk was damaged or replaced at some time: not all it ever had is there."""
        self.cut_how = ""
        self.loop = new_loop(world)
        self.group: LogGroup | None = None
        self.machines = Machines()
        self.memory: dict[str, Any] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._asks = 0
        self._doom = ""
        self._seen: object = None
        self._scrubbed = 0

    # -- what its parts ask -----------------------------------------------------------------------------

    @property
    def member_id(self) -> int:
        return self.node_id | self.incarnation << 32

    @property
    def is_up(self) -> bool:
        """Its group is open."""
        return self.group is not None

    @property
    def paused(self) -> bool:
        return self.loop.paused_until_us > self.world.now_us

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    def _charge(self, duration_us: int) -> None:
        self.loop.charge(duration_us)

    def _running(self) -> bool:
        return self.world.current is self.loop

    def clock_ms(self) -> int:
        """The wall clock: it has the loop's rate, an error of its own, and may jump."""
        return EPOCH_MS + self._wall_offset_ms + self.loop.now_us * self._rate_ppm // 1_000_000_000

    def jump_clock(self, by_ms: int) -> None:
        self._wall_offset_ms += by_ms

    # -- lifecycle --------------------------------------------------------------------------------------

    def start(self, life: int) -> None:
        """Begin the next life, unless that has happened since it was asked for."""
        if self.state is not State.DOWN or life != self.life:
            return
        self.life += 1
        self.state = State.STARTING
        self._doom, self._seen = "", None
        self.disk.mount()
        self.faults.injected.clear()
        self.memory = {}
        self.loop = new_loop(self.world, self._rate_ppm, self._monotonic_offset_us)
        self.loop.after_turn = self._look
        self.machines = self.world.workload.machines(self)
        self.world.note("start", self.life, self.node_id)
        self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.loop.charge(START_US)
        task = self.loop.create_task(self._open(), name="open")
        self.memory["open"] = task

    async def _open(self) -> None:
        try:
            group = await open_group(self)
        except CorruptLog as error:
            self._refuse(error)
        except Exception as error:
            self._fatal(error)
        else:
            self.group = group
            self.incarnation = group.log.hard_state.incarnation
            self.salvage = False
            self.state = State.OPEN
            self.world.note("open", group.log.last_index, self.node_id)
            self.loop.call_later(KEEP_S, self.keep)
            self.world.workload.opened(self)
            for check in self.world.checks:
                check.opened(self)

    def keep(self) -> None:
        """What the broker does beside requests: segments ahead, dead ones, space that is there again."""
        group = self.group
        if group is None:
            return
        if group.log.disk_full or group.log.write_error:
            group.log.retry_space()
        group.free_deleted_segments()
        self.loop.run_in_executor(None, group.log.prepare_now).add_done_callback(self._kept)
        if self.world.options.rot:
            sealed = group.log.segments()
            wanted = (
                sealed if self.world.nemesis.healed else sealed[self._scrubbed % max(1, len(sealed)) :][:1]
            )
            self._scrubbed += 1
            for segment in wanted:
                scrub = self.loop.create_task(group.scrub(segment.sequence, _at_once), name="scrub")
                scrub.add_done_callback(self._kept)
        if self.world.options.joins:
            joined = self.loop.create_task(self._join(group), name="join")
            joined.add_done_callback(self._kept)
        self.loop.call_later(KEEP_S, self.keep)

    async def _join(self, group: LogGroup) -> None:
        """Seal what is written to, and join what is small then."""
        try:
            await group.sealer.run(KEEP_S / 2, without_members=True)
            self.world.joined += await group.join_small(_at_once)
        except CorruptLog:
            if not self.damaged:
                raise
        except (StorageError, OSError):
            pass  # it has to wait; a failed flush has ended the group

    def _kept(self, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            self._fatal(error)

    def _refuse(self, error: BaseException) -> None:
        if not self.damaged:
            self.world.violate("a sound disk is accepted", f"node {self.node_id}: {error}")
        self._doom = f"refused: {error}"

    def _fatal(self, error: BaseException) -> None:
        """The product ends this life."""
        if isinstance(error, CorruptLog) and self.damaged:
            self._doom = f"refused: {error}"
            return
        if not self.faults.injected and not self.disk.dead:
            self.world.violate(
                "no node stops without a disk fault",
                f"node {self.node_id}: {type(error).__name__}: {error}",
                error,
            )
        self._doom = f"stopped: {type(error).__name__}: {error}"

    def escaped(self, error: BaseException) -> None:
        """An exception left a callback or a task of this node."""
        if isinstance(error, PowerCut) or self.disk.dead:
            self._doom = self.cut_how
            return
        self.world.violate(
            "no exception escapes", f"node {self.node_id}: {type(error).__name__}: {error}", error
        )

    def _look(self) -> None:
        """After each turn: has this life ended, has the group moved?"""
        if self.disk.dead and not self._doom:
            self._doom = self.cut_how  # a task has kept the exception to itself
        if self._doom:
            self.crash(self._doom)
            return
        group = self.group
        if group is None:
            return
        raft = group.raft
        seen = (raft.term, raft.role, raft.commit_index, group.log.last_index)
        if seen != self._seen:
            self._seen = seen
            self.world.note("state", (raft.term, getattr(raft.role, "name", ""), *seen[2:]), self.node_id)
            for check in self.world.checks:
                check.changed(self)

    def crash(self, how: str) -> None:
        """This life is over. `how`: "kill", "power loss", "stopped: why", "refused: why"."""
        world = self.world
        world.note("crash", how, self.node_id)
        self.loop.close()
        world.graveyard.append((self.loop, self.group, self.machines, self.memory))
        if how == "power loss":
            self.disk.lose_power()
        else:
            self.disk.kill()
        self.group = None
        self.state = State.REFUSED if how.startswith("refused") else State.DOWN
        for future in self._asked.values():
            world.answer(future, None, Unanswered(f"node {self.node_id}: {how}"))
        self._asked.clear()
        for check in world.checks:
            check.crashed(self, how)
        world.nemesis.crashed(self)

    def replace_disk(self) -> None:
        """The node, which is down, gets a new disk, and so is another member from now on."""
        self.disk.wipe()
        self.incarnation += 1
        self.damaged = self.salvage = False
        self.rotten = True
        self.state = State.DOWN

    def pause(self, until_us: int) -> None:
        self.loop.paused_until_us = max(self.loop.paused_until_us, until_us)

    # -- what reaches it --------------------------------------------------------------------------------

    def send(self, to: int, message: object) -> None:
        """The group's way out: a copy leaves now, seen from this node."""
        world = self.world
        for check in world.checks:
            check.sent(self, message)
        copy = frozen(message)
        now_us = self.loop.now_us
        gone = world.network.send(now_us, self.node_id, node_of(to), copy)
        world.trace.add(now_us, self.node_id, "send" if gone else "lost", (to, digest(copy)))

    def arrived(self, message: Message) -> None:
        """A peer message is here; it waits if the node is busy or paused."""
        if self.group is not None:
            self.loop.deliver(Handle(self._receive, (message,)))

    def _receive(self, message: Message) -> None:
        group = self.group
        if group is None:
            return
        world = self.world
        world.trace.add(world.now_us, self.node_id, "receive", type(message).__name__)
        group.receive(message)

    def asked(self, function: Callable[[Node], Any], answer: asyncio.Future[Any]) -> None:
        """A client's request has arrived."""
        if self.group is None:
            self.world.answer(answer, None, Unanswered(f"node {self.node_id} is {self.state.value}"))
            return
        self._asks += 1
        self.world.note("asked", _name_of(function), self.node_id)
        self._asked[self._asks] = answer
        self.loop.deliver(Handle(self._serve, (function, self._asks)))

    def _serve(self, function: Callable[[Node], Any], number: int) -> None:
        try:
            result = function(self)
        except Exception as error:
            self._answer(number, None, error)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result, loop=self.loop)
            task.add_done_callback(lambda done: self._answered(number, done))
        else:
            self._answer(number, result, None)

    def _answered(self, number: int, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, Exception):
            return  # cut off: the crash answers
        self._answer(number, None if error is not None else done.result(), error)

    def _answer(self, number: int, result: object, error: BaseException | None) -> None:
        answer = self._asked.pop(number, None)
        if answer is not None:
            self.world.note("answer", label(type(error)) if error is not None else "ok", self.node_id)
            self.world.answer(answer, result, error, self.loop.now_us)

    def draw(self, n: int) -> int:
        return self._draw(n)


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(getattr(function, "func", function), "__qualname__", "request"))


async def open_group(node: Node) -> LogGroup:
    """The real group, on the node's disk, network, clocks and random numbers."""
    group = await LogGroup.open(
        DIRECTORY,
        joining.group_options(node),
        clock_ms=node.clock_ms,
        on_fatal=node._fatal,
        commit_machines=node.machines.commit,
        tail_machines=node.machines.tail,
        send=node.send,
        monotonic=node.loop.time,
        random_below=node.draw,
        fs=node.disk,
    )
    if unconfirmed := group.log.damage.list_unconfirmed():
        # As broker/node/missing_records.py: nothing is lost here but what compaction removed.
        group.log.damage.resolve_missing([], unconfirmed)
    return group
