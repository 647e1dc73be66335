"""Two connections without a node, one with the Produce path in Python and one with the C extension.

Owns: what stands around a connection down to the open frame, without disk, loop or sockets, so that an input
costs microseconds; and the comparison. What the fast path declines is noted on both sides and not decoded.
Does not: make inputs (`fuzz_fast_path.py`), or judge the path in Python
(`tests/broker/produce/test_produce_fast_path.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition, Topic
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.compiled_fast_path import CompiledConnection, CompiledFastPath
from lockstep.broker.produce.produce_fast_path import ProduceFastPath
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.router import Route, Router
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.api import ApiKey
from lockstep.storage.log_group import LogGroup
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.plain_appends import PlainAppends
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.waiters import OpenWaiters
from tests.broker.appends import HOUR_MS, NOW_MS
from tests.broker.fake_partitions import SETTINGS
from tests.broker.network.rig import Transport

TOPIC: Final = "plain"
TOPIC_ID: Final = bytes([1] * 16)
PARTITIONS: Final = 3
MAX_FRAME_BYTES: Final = 64 << 10
MAX_UNCOMMITTED_BYTES: Final = 256 << 10
MAX_MESSAGE_BYTES: Final = 16 << 10


class _Group:
    """A log group down to its open frame."""

    group_id = 1

    def __init__(self) -> None:
        self.log = SimpleNamespace(has_space_for=lambda size: size <= MAX_UNCOMMITTED_BYTES)
        self.raft = SimpleNamespace(term=3)
        self.open = OpenFrame(MAX_FRAME_BYTES, lambda: NOW_MS)
        self.open_waiters = OpenWaiters()
        self._propose_scheduled = False
        leadership = SimpleNamespace(is_serving=True)
        applier = SimpleNamespace(in_flight_bytes=0)
        self.plain = PlainAppends(
            cast(LogGroup, self), cast(Any, leadership), self.open, cast(Any, applier), MAX_UNCOMMITTED_BYTES
        )

    @property
    def append_time_ms(self) -> int:
        return self.open.time_ms

    def schedule_propose(self) -> None:
        self._propose_scheduled = True


class Side:
    """One of the two."""

    def __init__(self, path_type: type[ProduceFastPath], connection_type: type[Connection]) -> None:
        self.declined: list[bytes] = []
        """The requests that the fast path has left to the router."""
        self._later: list[Callable[..., object]] = []
        declined = self.declined

        class Noting(connection_type):  # type: ignore[misc, valid-type]
            """Notes what it would give to the router."""

            __slots__ = ()

            def _route(self, frame: memoryview) -> None:
                declined.append(bytes(frame))
                if self._fast_requests is None:  # type: ignore[has-type]
                    path = self._shared.fast_paths[ApiKey.PRODUCE]
                    self._fast_requests = path.open(self, self.context)  # type: ignore[misc]

        self._connection_type = Noting
        self.group = _Group()
        self.producers = ProducerState(HOUR_MS)
        topic = Topic(TOPIC, TOPIC_ID, topic_config({"max.message.bytes": str(MAX_MESSAGE_BYTES)}, SETTINGS))
        for index in range(PARTITIONS):
            partition = Partition(topic, index, cast(LogGroup, self.group))
            partition.log = PartitionLog(index + 1, TOPIC_ID, index)
            topic.partitions.append(partition)
        self.logs = [partition.log for partition in topic.partitions]
        topics = {TOPIC: topic}
        by_id = {TOPIC_ID: topic}
        self.cluster = SimpleNamespace(changes=0, topic=topics.get, topic_by_id=by_id.get)
        self.route = SimpleNamespace(first=3, last=13, request_count=0)
        appender = Appender(cast(LogGroup, self.group), self.producers, lambda: NOW_MS)
        path = path_type(
            cast(MetadataCache, self.cluster),
            {1: appender},
            cast(NodeEndpoints, None),
            cast(Route, self.route),
        )
        loop = cast(asyncio.AbstractEventLoop, SimpleNamespace(call_soon=self._call_soon, time=lambda: 0.0))
        self.shared = Connections(
            cast(Router, None), SETTINGS, loop, TimeSlicer(self._call_soon), UnsentBytes(),
            RateLimitedLog(lambda: 0.0, logging.getLogger("fuzz")), {int(ApiKey.PRODUCE): path},
        )  # fmt: skip
        self.shared.clock = lambda: 0.0
        self.connect()

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        self._later.append(lambda: function(*arguments))

    def know_producers(self, last_sequence: int) -> None:
        """Each partition knows producer 1, which begins, and producer 2, with its last sequence."""
        self.producers._partitions.clear()
        for log in self.logs:
            for producer_id, sequence in ((1, -1), (2, last_sequence)):
                producer = self.producers._producer(log.local_id, producer_id, 0)
                producer.last_sequence, producer.last_time_ms = sequence, NOW_MS

    def connect(self) -> None:
        """Another connection."""
        self.transport = Transport()
        self.connection = self._connection_type(self.shared, "PLAINTEXT")
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def receive(self, data: bytes) -> None:
        """What one read of the socket gives, or more where the buffer is full."""
        left = memoryview(data)
        while left and not self.transport.closed and self.transport.reading:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self.connection.buffer_updated(size)

    def commit(self) -> None:
        """All that is appended is committed; replies are written."""
        self.group._propose_scheduled = False
        self.group.open.take()
        for waiter in self.group.open_waiters.take():
            waiter(None)
        while self._later:
            later, self._later[:] = list(self._later), []
            for each in later:
                each()

    def state(self) -> tuple[object, ...]:
        """All that an input may have left."""
        reader, connection, frame = self.connection._reader, self.connection, self.group.open
        return (
            [(each.next_offset, each.leader_epochs) for each in self.logs],
            frame._entries,
            frame._payloads,
            (frame.pending_bytes, frame._frame_bytes, frame._open_records, frame.time_ms),
            self.producers.snapshot(NOW_MS),
            self.declined,
            (self.route.request_count, self.shared.in_flight_bytes, len(self.shared)),
            (reader._start, reader._end, len(reader._buffer), reader._small_reads),
            [
                (each.correlation_id, each.request_bytes, [row[1:] for row in each.appended])
                for each in connection._replies or ()
            ],
            (connection._output_bytes, connection._pending_reply_bytes, connection._active),
            (self.transport.writes, self.transport.closed, self.transport.reading),
        )


class PathsDiffer(AssertionError):
    """The extension left another state than the path in Python."""


class FastPathPair:
    """Both sides, which get the same bytes."""

    def __init__(self) -> None:
        self.sides = (
            Side(ProduceFastPath, Connection),
            Side(CompiledFastPath, CompiledConnection),
        )

    @property
    def taken(self) -> int:
        """Requests that the fast path has taken."""
        return int(self.sides[0].route.request_count)

    def receive(self, data: bytes) -> None:
        for side in self.sides:
            side.receive(data)

    def commit(self) -> None:
        """Compares before and after. Raises PathsDiffer."""
        self._compare()
        for side in self.sides:
            side.commit()
        self._compare()
        for side in self.sides:
            side.declined.clear()
            side.transport.writes.clear()
            reader = side.connection._reader
            if side.transport.closed or not side.transport.reading or reader._end > reader._start:
                side.connection.connection_lost(None)
                side.connect()

    def _compare(self) -> None:
        for python, compiled in zip(*(side.state() for side in self.sides), strict=True):
            if python != compiled:
                raise PathsDiffer(f"{python!r} in Python, {compiled!r} compiled")
