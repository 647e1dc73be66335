"""One real broker and its coordinator of one transactional id, for tests that ask it without a connection.

world = await make(start_broker, lockstep_data_groups="2")
identity = await world.begin(("t", 0))
await until(world, TransactionState.COMPLETE_ABORT)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.broker.transactions.transaction_coordinator import MarkerWriter, TransactionCoordinator
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_records import (
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from lockstep.broker.transactions.transaction_rules import Identity
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.control import ControlKind, parse
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client

TIMEOUT_MS = 60_000
NAME = "my-id"
RequestKind = tuple[TransactionCoordinator, Identity]


class HeldMarkers:
    """The real way to other log groups, once it is opened."""

    def __init__(self, real: MarkerWriter) -> None:
        self._real = real
        self.asked: list[tuple[list[TopicPartition], TxnMarkerEntry]] = []
        self.open = asyncio.Event()
        self.refusal: RequestError | None = None

    async def write(self, partitions: Sequence[TopicPartition], marker: TxnMarkerEntry) -> None:
        self.asked.append((list(partitions), marker))
        await self.open.wait()
        if self.refusal is not None:
            raise self.refusal
        await self._real.write(partitions, marker)


class World:
    """One broker with a topic, and its coordinator of one id."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.markers: HeldMarkers

    @property
    def transactions(self) -> TransactionCoordinators:
        return self.broker.assembly.transactions

    @property
    def coordinator(self) -> TransactionCoordinator:
        (found,) = [
            each
            for each in self.transactions.coordinators()
            if each.group.group_id == self.transactions.log_group_of(NAME)
        ]
        return found

    @property
    def now(self) -> TransactionMetadata:
        return self.transactions.describe(NAME)

    def state(self) -> TransactionState:
        return self.now.state

    def hold(self) -> HeldMarkers:
        """Markers to other log groups wait from now on."""
        coordinator = self.coordinator
        coordinator._markers = self.markers = HeldMarkers(coordinator._markers)
        return self.markers

    async def begin(self, *places: TopicPartition, version: int = 0) -> Identity:
        identity = await self.transactions.init_producer_id(NAME, TIMEOUT_MS, -1, -1)
        if places:
            await self.transactions.add_partitions(NAME, *identity, places, version)
        return identity

    def places(self, *, own: bool) -> list[TopicPartition]:
        """Partitions of topic t that are in the coordinator's log group, or not."""
        topic = self.broker.assembly.cluster.topic("t")
        assert topic is not None
        group = self.coordinator.group
        return [("t", each.index) for each in topic.partitions if (each.group is group) == own]

    def kinds(self, place: TopicPartition) -> list[tuple[ControlKind, int]]:
        """The markers in a partition: how it ended, and by which producer epoch."""
        partition = self.broker.assembly.cluster.partition(*place)
        assert partition is not None
        data = b"".join(partition.group.read(partition.log, 0, 1 << 20).buffers)
        return [(parse(data, at).kind, header.producer_epoch) for at, header in iter_headers(data)]


async def make(start_broker: StartBroker, **texts: str) -> World:
    broker = await start_broker(transaction_state_log_num_partitions="4", **texts)
    client = await Client.connect(broker.port)
    await client.create("t", 4)
    await client.close()
    await broker.assembly.transactions.create_topic(broker.assembly.forwarder)
    return World(broker)


async def error(asked: object) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        await asked  # type: ignore[misc]
    return refused.value.error


async def until(world: World, state: TransactionState) -> None:
    for _ in range(2_000):
        if world.state() is state:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{world.state().label}, not {state.label}")
