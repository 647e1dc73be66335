"""A node's way of a Produce without sockets: connections, router, handler, appender and log group, with the
fast path or without it; and two such nodes side by side."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.metadata.lowest_sequences import LowestSequences
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.produce.api.produce import Produce
from lockstep.broker.produce.append_result import AppendPaths
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.compiled_fast_path import CompiledConnection, CompiledFastPath
from lockstep.broker.produce.produce_fast_path import PlainResponse, ProduceFastPath
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.router import Router
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.api import ApiKey
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.rate_limited_log import RateLimitedLog
from tests.broker.appends import HOUR_MS, NOW_MS
from tests.broker.fake_partitions import SETTINGS
from tests.broker.network.rig import Scripted, Transport
from tests.broker.wire import frame

CONFIGS = {
    "plain": {},
    "small": {"max.message.bytes": "300"},
    "compacted": {"cleanup.policy": "compact"},
    "locked": {"lockstep.locks": "true"},
    "unlocked": {"lockstep.locks": "false"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "not-old": {"message.timestamp.before.max.ms": "1000"},
    "not-new": {"message.timestamp.after.max.ms": "0"},
    "small-records": {"max.decompressed.message.bytes": "1000"},
    "__transaction_state": {},
}
"""The topics of a node, and their configurations."""
PARTITIONS = 3


class RigTopic(Topic):
    """May be referenced weakly."""


class RigConnection(Connection):
    """May be referenced weakly."""


class CompiledRigConnection(CompiledConnection):
    """May be referenced weakly."""


PYTHON, COMPILED = "python", "compiled"


class Cluster:
    """The topics of one node; those of `Partition`s in its log group."""

    def __init__(self) -> None:
        self.settings = SETTINGS
        self.changes = 0
        self.first_sequences = LowestSequences()
        self.metadata_index = 1
        self.topics: dict[str, Topic] = {}

    def topic(self, name: str | None) -> Topic | None:
        return self.topics.get(name or "")

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


def _no_paths(*_: str) -> AppendPaths:
    raise RequestError(ErrorCode.INVALID_REQUEST, "no transactions in these tests")


class ProduceNode:
    """One node. Args: fast: which fast path, PYTHON or COMPILED; None: without one."""

    def __init__(self, directory: Path, fast: str | None) -> None:
        self.directory, self.fast = directory, fast
        self.now_ms = NOW_MS
        self.taken = 0
        """Requests that the fast path took."""
        self.producers, self.locks = ProducerState(HOUR_MS * 24), LockTable()
        self.cluster = Cluster()
        self.producers.first_sequences = self.cluster.first_sequences
        self.producers.partition_key = self._key_of

    def _key_of(self, number: int) -> tuple[bytes, int] | None:
        log = self.group.partitions.get(number)
        return None if log is None else (log.topic_id, log.index)

    async def open(self) -> ProduceNode:
        self.group = await LogGroup.open(
            self.directory,
            GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20, flush=False)),
            clock_ms=lambda: self.now_ms,
            on_fatal=lambda error: None,
            tail_machines={"producers": self.producers, "locks": self.locks},
        )
        cluster = cast(MetadataCache, self.cluster)
        appender = self.appender = Appender(self.group, self.producers, lambda: self.now_ms)
        appender.locks = LockChecks(self.locks, self.group, cluster)
        endpoints = SimpleNamespace(of=lambda node_id, client: Endpoint(node_id, f"host-{node_id}", 9, None))
        loop = asyncio.get_running_loop()
        slicer, warnings = TimeSlicer(loop.call_soon), RateLimitedLog(loop.time, logging.getLogger("test"))
        others = cast(NodeEndpoints, endpoints)
        produce = Produce(cluster, {1: appender}, others, slicer, lambda _: _no_paths(), _no_paths)
        self.slow = Scripted(ApiKey.API_VERSIONS)
        controller = cast(Any, SimpleNamespace(is_local_controller=True))
        router = self.router = Router([produce, self.slow], controller, ApiVersionsResponse)
        paths = {}
        if self.fast is not None:
            path = COUNTED[self.fast](cluster, {1: appender}, others, router.route_of(ApiKey.PRODUCE))
            paths[int(ApiKey.PRODUCE)] = path
            path.node = self
        self.shared = Connections(router, SETTINGS, loop, slicer, UnsentBytes(), warnings, paths)
        self.shared.clock = lambda: 0.0
        await self.renew()
        return self

    async def renew(self) -> None:
        """All topics anew, with other partitions. Former ones are closed: all there are is compared."""
        topics = self.cluster.topics.values()
        former = [each.log.local_id for topic in topics for each in topic.partitions]
        self.cluster.topics = {}
        if former:
            await self.group.close_partitions(former)
        for local_id in former:
            self.producers.forget(local_id)
            self.locks.forget(local_id)
        self.cluster.first_sequences._topics.clear()
        for number, (name, config) in enumerate(CONFIGS.items(), 1):
            await self.make_topic(name, bytes([number] * 16), config)

    async def make_topic(self, name: str, topic_id: bytes, config: dict[str, str]) -> Topic:
        topic = self.cluster.topics[name] = RigTopic(name, topic_id, topic_config(config, SETTINGS))
        for log in await self.group.open_partitions([(topic_id, index) for index in range(PARTITIONS)]):
            partition = Partition(topic, log.index, self.group)
            partition.log = log
            topic.partitions.append(partition)
        self.cluster.changes += 1
        return topic

    def connect(self) -> tuple[Connection, Transport]:
        transport = Transport()
        kind = CompiledRigConnection if self.fast == COMPILED else RigConnection
        connection = kind(self.shared, "PLAINTEXT")
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport

    def open_frame(self) -> tuple[object, ...]:
        """All that an append has left so far."""
        batches = self.group._open
        ends = [
            (each.local_id, each.next_offset, each.leader_epochs) for each in self.group.partitions.values()
        ]
        return (
            list(batches._entries),
            [bytes(each) for each in batches._payloads],
            [(list(map(repr, each.directory)), list(map(bytes, each.payloads))) for each in batches._closed],
            (batches.pending_bytes, batches._frame_bytes, batches._open_records, batches.time_ms),
            ends,
            self.producers.snapshot(NOW_MS),
            self.locks.snapshot(NOW_MS),
            {key: dict(each) for key, each in self.cluster.first_sequences._topics.items()},
            self.router.request_counts(),
            self.shared.in_flight_bytes,
        )


class _CountedPath(ProduceFastPath):
    """Counts what it takes."""

    __slots__ = ("node",)

    node: ProduceNode

    def on_commit(self, replies: list[PlainResponse], error: BaseException | None) -> None:
        self.node.taken += len(replies)
        super().on_commit(replies, error)


class _CountedCompiledPath(CompiledFastPath):
    """Counts what it takes."""

    __slots__ = ("node",)

    node: ProduceNode

    def on_commit(self, replies: list[PlainResponse], error: BaseException | None) -> None:
        self.node.taken += len(replies)
        super().on_commit(replies, error)


COUNTED: dict[str, type[_CountedPath] | type[_CountedCompiledPath]] = {
    PYTHON: _CountedPath,
    COMPILED: _CountedCompiledPath,
}


def receive(connection: Connection, data: bytes) -> None:
    """Bytes from the client."""
    left = memoryview(data)
    while left:
        room = connection.get_buffer(-1)
        size = min(len(room), len(left))
        room[:size] = left[:size]
        left = left[size:]
        connection.buffer_updated(size)


class Pair:
    """Two nodes, of which one has a fast path, and a connection to each: both get the same bytes."""

    def __init__(self, directory: Path, fast: str = PYTHON) -> None:
        self.slow = ProduceNode(directory / "slow", fast=None)
        self.fast = ProduceNode(directory / "fast", fast=fast)

    @property
    def nodes(self) -> tuple[ProduceNode, ProduceNode]:
        return self.slow, self.fast

    async def open(self) -> Pair:
        for node in self.nodes:
            await node.open()
        self.connect()
        return self

    def connect(self) -> None:
        """Other connections."""
        self.connections, self.transports = zip(*(node.connect() for node in self.nodes), strict=True)

    def receive(self, *requests: bytes) -> None:
        """The requests are received, and both nodes are the same before their commit."""
        for request in requests:
            for connection, transport in zip(self.connections, self.transports, strict=True):
                if not transport.closed:
                    receive(connection, request)
        self.compare()

    def compare(self) -> None:
        slow, fast = (node.open_frame() for node in self.nodes)
        for expected, found in zip(slow, fast, strict=True):
            assert expected == found, f"{expected} without the fast path, {found} with it"

    async def commit(self) -> list[tuple[int, bytes]]:
        """Everything is committed; both nodes have sent the same: correlation ids and bodies."""
        for node in self.nodes:
            await node.group.committed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sent = [b"".join(transport.writes) for transport in self.transports]
        assert sent[0] == sent[1], f"{sent[0].hex()} without the fast path, {sent[1].hex()} with it"
        assert self.transports[0].closed == self.transports[1].closed, "one has closed its connection"
        for transport in self.transports:
            transport.writes.clear()
        self.compare()
        return list(replies(sent[0]))

    async def close(self) -> None:
        for node in self.nodes:
            await node.group.close()


def replies(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, correlation_id = struct.unpack_from(">ii", data)
        yield correlation_id, data[8 : 4 + length]
        data = data[4 + length :]


def request(
    *batches: tuple[int, bytes],
    topic: str = "plain",
    version: int = 9,
    correlation_id: int = 1,
    acks: int = -1,
    topic_id: bytes = bytes([1] * 16),
    **more: Any,
) -> bytes:
    """A whole Produce request of batches by partition index."""
    data = [PartitionProduceData(index=index, records=records) for index, records in batches]
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    message = ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics, **more)
    return frame(message, version, correlation_id)
