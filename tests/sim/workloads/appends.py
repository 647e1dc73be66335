"""The `appends` workload: producers and consumers of several partitions, and one who administers them.

Segments are small and log starts move, so that segments roll, checkpoints are written, files are freed and
recycled, and followers that were away long are shipped checkpoints. The tail machine is the broker's own
`ProducerState`; appends go through its fast path of Produce (`fast_path.py`), or else its `Appender`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.producer_state import ProducerState
from tests.sim.checks.clients import Clients
from tests.sim.checks.history import group_of
from tests.sim.checks.readers import Readers
from tests.sim.faces import Check, Machines, Workload
from tests.sim.workloads.administering import Administrator
from tests.sim.workloads.asking import at_rest, until
from tests.sim.workloads.consuming import Consumer
from tests.sim.workloads.fast_path import FastProduce
from tests.sim.workloads.producing import MAX_MESSAGE_BYTES, IdempotentProducer, PlainProducer

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

PRODUCERS_SECTION: Final = "producers"
PRODUCER_EXPIRATION_MS: Final = 86_400_000
PARTITIONS: Final = 3
ADMINISTRATOR_S: Final = 1.5
"""Between two acts of the administrator, on average."""


class Appends(Workload):
    """See the module."""

    name = "appends"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.clients = Clients(world)
        self.readers = Readers(world, self.clients)
        self.numbers: dict[int, int] = {}
        """What clients know: the group's number of each Kafka partition."""
        self.closing: set[int] = set()
        """Numbers that somebody has asked to close."""
        self._administrator = Administrator(self)
        self._last = PlainProducer(self, "last")
        self._active = 0

    def machines(self, node: Node) -> Machines:
        return Machines(tail={PRODUCERS_SECTION: ProducerState(PRODUCER_EXPIRATION_MS)})

    def opened(self, node: Node) -> None:
        producers = node.machines.tail[PRODUCERS_SECTION]
        assert isinstance(producers, ProducerState)
        appender = node.memory["appender"] = Appender(group_of(node), producers, node.clock_ms)
        node.memory["fast"] = FastProduce(node, appender, MAX_MESSAGE_BYTES)

    def checks(self) -> Sequence[Check]:
        return self.clients, self.readers

    def is_gone(self, number: int) -> None:
        """A leader does not know a partition: then somebody must have wanted it closed."""
        if number not in self.closing:
            self.world.violate("a partition is gone", f"partition {number}, and nobody has closed it")
        for index, known in list(self.numbers.items()):
            if known == number:
                del self.numbers[index]

    async def client(self, number: int) -> None:
        """A producer and a consumer; the first client administers, too."""
        actors = [self._consume(number), self._produce(number)]
        if number == 0:
            actors.append(self._administer())
        self._active += 1
        await asyncio.gather(*actors)
        self._active -= 1

    async def _produce(self, number: int) -> None:
        world, name = self.world, f"c{number}"
        random = world.random(f"client {name}")
        if number % 3 == 2:
            plain = PlainProducer(self, name)
            while await self._thinks(random.expovariate(1.0)):
                if self.numbers:
                    await plain.one(self.numbers[random.choice(sorted(self.numbers))])
            return
        idempotent = IdempotentProducer(self, name, 1000 + number)
        while await self._thinks(random.expovariate(1.0)):
            if self.numbers:
                await idempotent.one(self.numbers[random.choice(sorted(self.numbers))])
        await idempotent.finish()

    async def _consume(self, number: int) -> None:
        random = self.world.random(f"consuming {number}")
        consumer = Consumer(self, str(number))
        while await self._thinks(random.expovariate(1.0)):
            await consumer.one()

    async def _administer(self) -> None:
        random = self.world.random("administrator")
        await self._administrator.open_missing()
        while self.world.working:
            await asyncio.sleep(random.expovariate(1 / ADMINISTRATOR_S))
            if self.world.working:
                await self._administrator.one()

    async def _thinks(self, share: float) -> bool:
        """Wait a while; False when the work is over."""
        if self.world.working:
            await asyncio.sleep(share * self.world.options.think_ms / 1000)
        return self.world.working

    async def write_on(self) -> None:
        """A batch for every partition."""
        await self._administrator.open_missing()
        for index in sorted(self.numbers):
            if not await self._last.one(self.numbers[index]):
                await self._last.back_off()

    async def settle(self) -> None:
        """Every partition takes another batch, every node has everything, and readers get it from each."""
        await until(lambda: self._active == 0)
        await self._administrator.open_missing()
        for index in sorted(self.numbers):
            while index in self.numbers and not await self._last.one(self.numbers[index]):
                await self._last.back_off()
        await at_rest(self.world)
        for node in self.world.members():
            consumer = Consumer(self, f"last {node.node_id}")
            for index in sorted(self.numbers):
                await consumer.read_to_the_end(node, self.numbers[index])
