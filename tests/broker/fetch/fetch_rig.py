"""A node's way of a Fetch without sockets: connections, router, handler, sessions, purgatory and log group,
with the fast path or without it; and two such nodes side by side."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.authorization.authorizer import Access, Authorizer
from lockstep.broker.fetch.api.fetch import Fetch
from lockstep.broker.fetch.fetch_fast_path import FetchFastPath, PlainFetch, PlainFetches
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.fetch.fetch_requests import FetchRequests
from lockstep.broker.fetch.fetch_session import FetchItem, FetchSessions
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.fast_path import FastConnection
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.requests.router import Router
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from lockstep.protocol.records.batch import read_header
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.types import ReadResult
from tests.broker.appends import NOW_MS
from tests.broker.fake_partitions import SETTINGS
from tests.broker.network.rig import Scripted, Transport
from tests.broker.produce.fast_path_rig import Cluster, RigConnection, RigTopic, receive, replies
from tests.broker.wire import batch, frame

TOPICS = ("one", "two")
PARTITIONS = 2


class FetchNode:
    """One node. Args: fast: with the fast path."""

    def __init__(self, directory: Path, fast: bool) -> None:
        self.directory, self.is_fast = directory, fast
        self.taken = 0
        """Requests that the fast path took."""
        self.is_cold = False
        """True while nothing is in memory."""
        self.denied: set[str] = set()
        """Topics that no client may read."""
        self.cluster = Cluster()
        self.cluster.settings = SETTINGS

    async def open(self) -> FetchNode:
        self.group = await LogGroup.open(
            self.directory,
            GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20, flush=False)),
            clock_ms=lambda: NOW_MS,
            on_fatal=lambda error: None,
        )
        self._read_ahead = self.group._read_ahead
        self.group._read_ahead = cast(Any, SimpleNamespace(read=self._read, close=self._read_ahead.close))
        loop = asyncio.get_running_loop()
        slicer, warnings = TimeSlicer(loop.call_soon), RateLimitedLog(loop.time, logging.getLogger("test"))
        endpoints = SimpleNamespace(of=lambda node_id, client: Endpoint(node_id, f"host-{node_id}", 9, None))
        self.purgatory = FetchPurgatory(loop)
        self.unsent_bytes = UnsentBytes()
        ids = itertools.count(1000)
        self.sessions = FetchSessions(5, 20, lambda: 0.0, lambda largest: next(ids))
        self.requests = FetchRequests(
            cast(MetadataCache, self.cluster),
            self.sessions,
            self.purgatory,
            self.unsent_bytes,
            cast(NodeEndpoints, endpoints),
            lambda node_id, group_id: True,
            cast(Authorizer, SimpleNamespace(access=lambda api_key: _DenyingAccess(self.denied))),
        )
        self.slow = Scripted(ApiKey.API_VERSIONS)
        controller = cast(Any, SimpleNamespace(is_local_controller=True))
        router = self.router = Router([Fetch(self.requests), self.slow], controller, ApiVersionsResponse)
        paths = {}
        if self.is_fast:
            paths = {int(ApiKey.FETCH): CountedPath(self, self.requests, router.route_of(ApiKey.FETCH))}
        self.shared = Connections(router, SETTINGS, loop, slicer, self.unsent_bytes, warnings, paths)
        self.shared.clock = lambda: 0.0
        return self

    def _read(self, log: Any, offset: int, max_bytes: int, end: int) -> ReadResult:
        if self.is_cold and offset < end:
            return ReadResult([], 0, cold=True)
        return self._read_ahead.read(log, offset, max_bytes, end)

    async def make_topic(self, name: str, topic_id: bytes) -> None:
        topic = self.cluster.topics[name] = RigTopic(name, topic_id, topic_config({}, SETTINGS))
        for log in await self.group.open_partitions([(topic_id, index) for index in range(PARTITIONS)]):
            partition = Partition(topic, log.index, self.group)
            partition.log = log
            log.on_advance.append(self._waker(partition))
            topic.partitions.append(partition)
        self.cluster.changes += 1

    def _waker(self, partition: Partition) -> Callable[[], None]:
        return lambda: self.purgatory.wake(partition)

    def delete_topic(self, name: str) -> None:
        topic = self.cluster.topics.pop(name, None)
        if topic is not None:
            topic.deleted = True
            self.cluster.changes += 1
            for partition in topic.partitions:
                self.purgatory.wake(partition)

    def append(self, name: str, index: int, data: bytes) -> None:
        partition = self.cluster.partition(name, index)
        if partition is not None and partition.group.is_leader:
            self.group.append(partition.log, bytearray(data), read_header(data))

    def lead(self, leads: bool) -> None:
        """The group's leadership goes or comes back."""
        if leads:
            self.group._serve(True)
        elif self.group.is_leader:
            self.group.on_not_accepting()
        for topic in self.cluster.topics.values():
            for partition in topic.partitions:
                self.purgatory.wake(partition)

    def expire(self) -> None:
        """The longest wait of all waiting requests is over."""
        waiting = {
            fetch: None
            for topic in self.cluster.topics.values()
            for partition in topic.partitions
            for fetch in partition.delayed_fetches
        }
        for fetch in waiting:
            self.purgatory._expire(fetch)

    def connect(self) -> tuple[Connection, Transport]:
        transport = Transport()
        connection = RigConnection(self.shared, "PLAINTEXT")
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport

    def state(self) -> tuple[object, ...]:
        """All that a Fetch has left so far."""
        return (
            [
                (
                    each.session_id, each.epoch, each.uses_topic_ids, each.weight, each.last_used,
                    [(key, _item_state(item)) for key, item in each.items.items()],
                )
                for each in self.sessions._sessions.values()
            ],
            self.sessions.partition_count,
            self.purgatory.count,
            [
                (topic.name, partition.index, len(partition.delayed_fetches))
                for topic in self.cluster.topics.values()
                for partition in topic.partitions
            ],
            self.router.request_counts(),
            self.shared.in_flight_bytes,
            self.unsent_bytes.total,
        )  # fmt: skip


def _item_state(item: FetchItem) -> tuple[object, ...]:
    partition = item.partition
    place = None if partition is None else (partition.topic.name, partition.topic.topic_id, partition.index)
    names = [name for name in FetchItem.__slots__ if name != "partition"]
    return place, [getattr(item, name) for name in names]


class _DenyingAccess(Access):
    """Denies what is in a set of names."""

    __slots__ = ("_denied",)

    is_checked = True

    def __init__(self, denied: set[str]) -> None:
        self._denied = denied

    def allows(
        self,
        client: ClientContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        is_requested: bool = True,
    ) -> bool:
        return operation is not AclOperation.READ or name not in self._denied


class CountedPath(FetchFastPath):
    """Counts what it takes."""

    __slots__ = ("node",)

    def __init__(self, node: FetchNode, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.node = node

    def open(self, connection: FastConnection, client: ClientContext) -> PlainFetches:
        return _Counted(self, connection, client)


class _Counted(PlainFetches):
    __slots__ = ()

    def append(self, frame: memoryview) -> PlainFetch | None:
        reply = super().append(frame)
        assert isinstance(self.path, CountedPath)
        self.path.node.taken += reply is not None
        return reply


class Pair:
    """Two nodes, of which one has the fast path, and connections to each: both get the same bytes."""

    def __init__(self, directory: Path) -> None:
        self.slow = FetchNode(directory / "slow", fast=False)
        self.fast = FetchNode(directory / "fast", fast=True)
        self.nodes = self.slow, self.fast
        self._topic_ids = itertools.count(1)

    async def open(self) -> Pair:
        for node in self.nodes:
            await node.open()
        await self.renew()
        return self

    async def renew(self) -> None:
        """New topics, no sessions, one connection to each node."""
        for node in self.nodes:
            for name in list(node.cluster.topics):
                node.delete_topic(name)
            node.expire()
            node.is_cold = False
            node.denied.clear()
            node.lead(True)
            node.cluster.settings = SETTINGS
        for name in TOPICS:
            await self.make_topic(name)
        self.end_sessions()
        self.connect()

    def end_sessions(self) -> None:
        """There are none."""
        for node in self.nodes:
            node.sessions._sessions.clear()
            node.sessions.partition_count = 0

    async def make_topic(self, name: str) -> None:
        topic_id = next(self._topic_ids).to_bytes(16, "big")
        for node in self.nodes:
            await node.make_topic(name, topic_id)

    def connect(self) -> None:
        """Other connections."""
        self.connections, self.transports = zip(*(node.connect() for node in self.nodes), strict=True)

    def receive(self, *requests: bytes) -> None:
        for request in requests:
            for connection, transport in zip(self.connections, self.transports, strict=True):
                if not transport.closed:
                    receive(connection, request)

    async def settle(self) -> list[tuple[int, bytes]]:
        """All that can run has run, and both nodes are the same. Returns what both have sent: correlation ids
        and bodies."""
        for node in self.nodes:
            if node.group.is_leader:
                await node.group.committed()
        for _ in range(4):
            await asyncio.sleep(0)
        if self.slow.is_cold:
            await asyncio.sleep(0.02)
        states = [node.state() for node in self.nodes]
        for slow, fast in zip(*states, strict=True):
            assert slow == fast, f"{slow} without the fast path, {fast} with it"
        sent = [b"".join(transport.writes) for transport in self.transports]
        assert sent[0] == sent[1], f"{sent[0].hex()} without the fast path, {sent[1].hex()} with it"
        assert self.transports[0].closed == self.transports[1].closed, "one has closed its connection"
        assert len({connection.has_requests for connection in self.connections}) == 1
        for transport in self.transports:
            transport.writes.clear()
        return list(replies(sent[0]))

    async def close(self) -> None:
        for node in self.nodes:
            await node.group.close()


def request(
    pair: Pair,
    *wanted: tuple[str, int, int],
    version: int = 12,
    correlation_id: int = 1,
    forgotten: tuple[tuple[str, int], ...] = (),
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> bytes:
    """A whole Fetch of (topic, partition, offset)s, the same for both nodes."""
    topics: list[FetchTopic] = []
    for name, index, offset in wanted:
        topic_id = topic_id_of(pair, name)
        if not topics or topics[-1].topic != name:
            topics.append(FetchTopic(topic=name, topic_id=topic_id))
        topics[-1].partitions.append(
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
        )
    given: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    left = [
        ForgottenTopic(topic=name, topic_id=topic_id_of(pair, name), partitions=[i]) for name, i in forgotten
    ]
    return frame(FetchRequest(topics=topics, forgotten_topics_data=left, **given), version, correlation_id)


def topic_id_of(pair: Pair, name: str) -> bytes:
    topic = pair.slow.cluster.topics.get(name)
    return topic.topic_id if topic is not None else bytes([250] * 16)


async def write(pair: Pair, *data: bytes, topic: str = "one", index: int = 0) -> None:
    for node in pair.nodes:
        for each in data:
            node.append(topic, index, each)
        if node.group.is_leader:
            await node.group.committed()


def transactional() -> bytes:
    """A batch of a transaction."""
    return batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
