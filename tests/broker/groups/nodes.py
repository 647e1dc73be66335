"""Consumer groups on three nodes of one process: real log groups, no brokers and no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import Record
from lockstep.broker.groups.group_state import SECTION, GroupsState
from lockstep.broker.groups.group_store import OffsetTransaction
from lockstep.broker.metadata.metadata_cache import (
    CONSUMER_OFFSETS,
    CONSUMER_OFFSETS_TOPIC_ID,
    Partition,
    Topic,
)
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.read_barrier import take_read_barrier
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records import control
from lockstep.protocol.records.batch import read_header
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import StateMachine
from tests.broker.groups.fakes import World
from tests.storage.cluster import Cluster
from tests.storage.loop_time import LoopTime, PatientLoop

NUMBER = 1
PARTITIONS = 4
CLOCK_MS = 1_700_000_000_000


class Known:
    """What `GroupCoordinators` asks of the broker's cluster: one topic, on one log group."""

    def __init__(self, group: LogGroup, settings: Settings) -> None:
        self.settings = settings
        self.groups: Mapping[int, Any] = {}
        self.image = SimpleNamespace(topics={})
        self.visible: set[str] = set()
        self._topic = Topic(CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID, topic_config({}, settings))
        for index in range(PARTITIONS):
            (log,) = [
                each
                for each in group.partitions.values()
                if (each.topic_id, each.index) == (CONSUMER_OFFSETS_TOPIC_ID, index)
            ]
            partition = Partition(self._topic, index, group)
            partition.log = log
            self._topic.partitions.append(partition)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._topic if topic_id == CONSUMER_OFFSETS_TOPIC_ID else None

    def topic(self, name: str) -> Topic | None:
        return self._topic if name in self.visible else None


class Nodes:
    """Three of them, by one clock. `start` and `stop` it."""

    def __init__(self, directory: Path, clock: LoopTime, **settings: str) -> None:
        self.states: dict[int, GroupsState] = {}
        self.cluster = Cluster(directory, machines=self._machines, monotonic=clock)
        self._clock = clock
        self.known: dict[int, Known] = {}
        self.groups: dict[int, GroupCoordinators] = {}
        self.appenders: dict[int, Appender] = {}
        """What they know of producers is what they appended themselves."""
        texts = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
        texts |= {name.replace("_", "."): text for name, text in settings.items()}
        self.settings = from_texts(texts)

    def _machines(self, node: int) -> Mapping[bytes, tuple[str, StateMachine]]:
        state = self.states[node] = GroupsState()
        return {CONSUMER_OFFSETS_TOPIC_ID: (SECTION, state)}

    async def start(self) -> None:
        cluster = self.cluster
        await cluster.start()
        leader = await cluster.leader()
        await leader.open_partitions([(CONSUMER_OFFSETS_TOPIC_ID, index) for index in range(PARTITIONS)])
        await cluster.agreed()
        for node in cluster.groups:
            known = self.known[node] = Known(cluster.groups[node], self.settings)
            loop: Any = PatientLoop(self._clock)
            self.groups[node] = GroupCoordinators(known, lambda: CLOCK_MS, loop)  # type: ignore[arg-type]
            self.appenders[node] = appender = Appender(
                cluster.groups[node], ProducerState(86_400_000), lambda: CLOCK_MS
            )
            self.groups[node].add_shard(NUMBER, cluster.groups[node], self.states[node], appender)
        await self.lead(1)

    async def stop(self) -> None:
        for groups in self.groups.values():
            groups.resign()
        await self.cluster.stop()

    async def lead(self, node: int) -> GroupCoordinator:
        """Hand the leadership to a node, and wait until it serves."""
        group = self.cluster.groups[node]
        while not group.is_leader:
            leader = await self.cluster.leader()
            if leader is not group:
                leader.transfer(node)
                await self.cluster.until(lambda: any(each.is_leader for each in self.cluster.groups.values()))
        return await self.serving(node)

    async def serving(self, *among: int) -> GroupCoordinator:
        """The coordinator of the node, of these, that serves."""
        found: list[GroupCoordinator] = []

        def serves() -> bool:
            found.extend(each for node in among for _, each in self.groups[node].active_shards())
            return bool(found)

        await self.cluster.until(serves)
        return found[0]

    async def write(self, node: int, group_id: str, *records: Record) -> ErrorCode:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        groups = self.groups[node]
        await take_read_barrier(groups.lapsed_shards)
        groups.store(group_id).append(group_id, records, done.set_result)
        return await asyncio.wait_for(done, 5)

    async def write_within(self, node: int, producer_id: int, group_id: str, *records: Record) -> ErrorCode:
        """The same within a transaction whose coordinator knows of it."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        transaction = OffsetTransaction(producer_id, 0, verified=True)
        self.groups[node].store(group_id).append_within(transaction, group_id, records, done.set_result)
        return await asyncio.wait_for(done, 5)

    def end(self, node: int, producer_id: int, group_id: str) -> None:
        """A transaction commits."""
        partition = self.groups[node].store(group_id).partition(group_id)
        assert partition is not None
        batch = control.build(
            control.ControlKind.COMMIT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=CLOCK_MS,
        )
        self.cluster.groups[node].append(partition, bytearray(batch), read_header(batch))

    def cut_off(self, *nodes: int) -> None:
        """Nothing passes between these and the others."""
        self.cluster.lost = lambda sender, to, message: (sender in nodes) != (to in nodes)

    def heal(self) -> None:
        self.cluster.lost = lambda sender, to, message: False


class Members(World):
    """Members that speak to one coordinator after the other."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator
        self.loop = SimpleNamespace(turn=lambda: None)  # type: ignore[assignment]


async def answered(answer: Any) -> Any:
    """What it is answered, at last."""
    for _ in range(500):
        if answer.done:
            return answer.response
        await asyncio.sleep(0.01)
    raise AssertionError("not answered within five seconds")
