"""A world: virtual time, one heap of events, nodes, network, clients; a safety phase, then a liveness phase.

Time is whole microseconds. Events run in order of (time, order of scheduling), so a run is a function of its
seed, its options and the code. Invariant: whoever wants to look at or change a node from outside its own
callbacks does so between events, or through `ask`.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NoReturn, TypeVar, overload

from tests.sim import membership, rot
from tests.sim.clocks import virtual_time
from tests.sim.faces import Check, Unanswered, Violation, Workload
from tests.sim.joining import GROUP_ID
from tests.sim.loop import Handle, SimLoop, new_loop
from tests.sim.nemesis import Nemesis
from tests.sim.network import Network
from tests.sim.node import Node, State
from tests.sim.options import Options
from tests.sim.trace import Trace

T = TypeVar("T")
Event = tuple[int, int, Callable[[Any], object], Any]

CLIENT_DELAY_US = 300
"""One way between a client and a node, on average."""
WRITES_PER_LOOK = 20
"""While something rotten waits for the log to go on: looking reads whole segments."""


class World:
    """See the module. `run` may be called once."""

    def __init__(
        self,
        seed: int,
        options: Options,
        workload: type[Workload],
        standard_checks: Callable[[World], list[Check]],
        trace: Trace | None = None,
    ) -> None:
        self.seed = seed
        self.group_id = GROUP_ID
        self.options = options
        self.trace = trace or Trace()
        self.now_us = 0
        self.current: SimLoop | None = None
        """The loop whose callback runs just now."""
        self.working = True
        """Clients go on."""
        self.violation: Violation | None = None
        self.shared: dict[str, object] = {}
        self.joined = 0
        """Files that were joined into others, on all nodes."""
        """What checks have in common, by a name of theirs; it goes with the world."""
        self.graveyard: list[object] = []
        """Keeps what crashed nodes left, so that no destructor runs in the middle of the world."""
        self._over = False
        self._heap: list[Event] = []
        self._sequence = 0
        self._randoms: dict[str, Random] = {}
        self._thread_random = self.random("threads")
        self._client_random = self.random("client delays")
        self.clients = new_loop(self)
        self.network = Network(options, self.random("network"), self.push, self._arrived)
        self.nodes = {number: Node(self, number) for number in range(1, options.nodes + 1)}
        self.nemesis = Nemesis(self)
        self.workload = workload(self)
        self.checks: list[Check] = [*standard_checks(self), *self.workload.checks()]
        self.healed_at_us = 0
        self._actors: list[asyncio.Task[Any]] = []

    # -- for workloads and checks -----------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.now_us / 1e6

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def random(self, purpose: str) -> Random:
        """The random numbers of one purpose; the same object each time."""
        found = self._randoms.get(purpose)
        if found is None:
            found = self._randoms[purpose] = Random(f"{self.seed}/{purpose}")
        return found

    def note(self, kind: str, text: object, node_id: int = 0) -> None:
        """Add an event to the trace."""
        self.trace.add(self.now_us, node_id, kind, text)

    def violate(self, rule: str, text: str, cause: BaseException | None = None) -> NoReturn:
        """A rule is broken: the run ends, whoever may catch this."""
        if self.violation is None:
            self.violation = Violation(rule, text)
            self.violation.__cause__ = cause
        raise self.violation

    def running(self) -> list[Node]:
        """Nodes with an open group, paused ones included."""
        return [node for node in self.nodes.values() if node.group is not None]

    def leaders(self) -> list[Node]:
        """Nodes that believe to lead; partitioned ones may be wrong."""
        return [node for node in self.running() if node.group is not None and node.group.is_leader]

    def leader(self) -> Node | None:
        """The one of them in the highest term."""
        return max(self.leaders(), key=lambda n: n.group.term if n.group is not None else 0, default=None)

    def members(self) -> list[Node]:
        """Nodes that must hold everything in the end: the members, as the leader has them."""
        leader = self.leader()
        configuration = getattr(getattr(leader, "group", None), "configuration", None)
        found = [n for n in self.nodes.values() if n.state is not State.REFUSED]
        if configuration is None:
            return found
        return [node for node in found if node.member_id in configuration.members]

    @overload
    async def ask(
        self, node: Node, function: Callable[[Node], Coroutine[Any, Any, T]], timeout_s: float = 5.0
    ) -> T: ...

    @overload
    async def ask(self, node: Node, function: Callable[[Node], T], timeout_s: float = 5.0) -> T: ...

    async def ask(self, node: Node, function: Callable[[Node], Any], timeout_s: float = 5.0) -> Any:
        """Run `function(node)` on the node's loop; what it returns or raises. `Unanswered`: nobody knows."""
        answer: asyncio.Future[Any] = self.clients.create_future()
        at_us = self.now_us + self._client_delay_us()
        self.push(at_us, lambda _: node.asked(function, answer), None)
        late = self.clients.call_later(timeout_s, _too_late, answer, node.node_id)
        try:
            return await answer
        finally:
            late.cancel()

    def answer(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None, now_us: int = 0
    ) -> None:
        """A node's answer sets out for the client."""
        at_us = max(now_us, self.now_us) + self._client_delay_us()
        self.push(at_us, self.clients.deliver, Handle(_set, (future, result, error)))

    def spawn(self, actor: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task on the clients' loop; an exception that leaves it is a violation."""
        task = self.clients.create_task(actor, name=name)
        task.add_done_callback(self._actor_ended)
        return task

    # -- for the world's own parts ----------------------------------------------------------------------

    def push(self, at_us: int, handler: Callable[[Any], object], argument: Any) -> None:
        """`handler(argument)` at a time, after everything that was pushed for it before."""
        self._sequence += 1
        heapq.heappush(self._heap, (at_us, self._sequence, handler, argument))

    def thread_delay_us(self) -> int:
        """How long it takes until a thread gets to work, or is heard of."""
        return int(self._thread_random.expovariate(1 / 150)) + 1

    def _client_delay_us(self) -> int:
        return int(self._client_random.expovariate(1 / CLIENT_DELAY_US)) + 1

    def _arrived(self, parcel: tuple[int, Any]) -> None:
        node = self.nodes.get(parcel[0])
        if node is not None:
            node.arrived(parcel[1])

    def escaped(self, loop: SimLoop, error: BaseException) -> None:
        """An exception left a callback, or a task that nobody asked about it."""
        if isinstance(error, Violation) or self._over:
            return
        for node in self.nodes.values():
            if node.loop is loop:
                node.escaped(error)
                return
        if loop is self.clients:
            self.violate("no exception escapes", f"clients: {type(error).__name__}: {error}", error)

    def _actor_ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self.violation is None:
            text = f"{task.get_name()}: {type(error).__name__}: {error}"
            self.violation = (
                error if isinstance(error, Violation) else Violation("no exception escapes", text)
            )
            if error is not self.violation:
                self.violation.__cause__ = error

    # -- the run ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases. Raises Violation."""
        collected = gc.isenabled()
        gc.disable()  # destructors in the middle of the world would be events
        logging.disable(logging.CRITICAL)
        try:
            with virtual_time(self):
                for node in self.nodes.values():
                    node.start(0)
                for number in range(self.options.clients):
                    self._actors.append(self.spawn(self.workload.client(number), f"client {number}"))
                self.spawn(self._story(), "story")
                self._loop()
        finally:
            self._end()
            logging.disable(logging.NOTSET)
            if collected:
                gc.enable()

    def _loop(self) -> None:
        heap, pop = self._heap, heapq.heappop
        while not self._over:
            if not heap:
                self.violate("time goes on", "nothing is left to happen")
            self.now_us, _, handler, argument = pop(heap)
            handler(argument)
            if self.violation is not None:
                raise self.violation

    async def _story(self) -> None:
        """The phases, as an actor among the clients."""
        hunt = self.clients.create_task(self.nemesis.hunt(), name="nemesis")
        hunt.add_done_callback(self._actor_ended)
        await self.workload.safety_phase()
        hunt.cancel()
        self.working = False
        self.healed_at_us = self.now_us
        self.note("healed", "all faults end")
        self.nemesis.heal()
        for check in self.checks:
            check.healed()
        try:
            await asyncio.wait_for(self._settled(), self.options.liveness_s)
        except TimeoutError:
            self.violate(
                "what was acknowledged is everywhere in time",
                f"not within {self.options.liveness_s} s after healing: {self.describe()}",
            )
        for check in self.checks:
            check.finished()
        self.note("end", self._sequence)
        self._over = True

    async def _settled(self) -> None:
        await asyncio.gather(*self._actors, return_exceptions=True)
        await self._restored()
        while True:
            await self._repaired()
            await self.workload.settle()
            if not await self._restored():
                return  # nobody came back as another member meanwhile

    async def _restored(self) -> bool:
        """Wait until a leader serves and every node is a voter; whether there was something to wait for."""
        waited = False
        while (leader := self.leader()) is None or (
            self.options.nodes > 1 and not await membership.restored(self.nemesis)
        ):
            waited = True
            await asyncio.sleep(0.1)
        self.note("leader", leader.node_id)
        return waited

    async def _repaired(self) -> None:
        """Wait until no sealed segment is rotten. One in which a kept checkpoint ends is repaired when later
        ones take that one's place (docs/decisions/0014): then the log has to go on."""
        while (stuck := rot.unrepaired(self)) is not None:
            for _ in range(WRITES_PER_LOOK if stuck else 0):
                await self.workload.write_on()
            await asyncio.sleep(0.1)

    def describe(self) -> str:
        """Each node in a few words."""
        words = []
        for node in self.nodes.values():
            text = f"node {node.node_id} {node.state.value}"
            if node.group is not None:
                raft = node.group.raft
                text += f" {getattr(raft.role, 'name', raft.role)} term {raft.term}"
                text += f" commit {raft.commit_index} last {node.group.log.last_index}"
                for member in raft.configuration.members:
                    progress = raft.progress(member)
                    if progress is not None:
                        text += f" ({member}: {progress.state.value}, match {progress.match_index}"
                        text += f", next {progress.next_index}, in flight {list(progress.in_flight)})"
            words.append(text)
        return "; ".join(words)

    def _end(self) -> None:
        """Nothing of the world runs after this, whatever its destructors try."""
        self._over = True
        self.current = None
        for node in self.nodes.values():
            node.loop.close()
            node.disk.kill()
        self.clients.close()


@contextmanager
def buried() -> Iterator[None]:
    """What is left of a world when this ends is freed, and whatever its tasks say about that is not heard."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tasks that never began
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _set(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _too_late(future: asyncio.Future[Any], node_id: int) -> None:
    if not future.done():
        future.set_exception(Unanswered(f"node {node_id} took too long"))
