"""Producers as Kafka's clients are: the same batch again and again until somebody answers for it.

An idempotent producer has up to five batches in flight per partition, with consecutive sequences, and sends
each until it is acknowledged. A plain one sends each batch once. Some batches are such that every broker must
refuse them. Source: KIP-98, KIP-360 (a new epoch starts at sequence 0), Kafka's Sender.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from lockstep.broker.produce.produce_fast_path import PlainResponse
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_default_settings import MAX_DECOMPRESSED_BYTES
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.log_group import LogGroup
from tests.sim.checks.clients import VALUE_MARK, Write
from tests.sim.checks.history import group_of
from tests.sim.faces import Unanswered
from tests.sim.workloads.asking import BACKOFF_S, Elsewhere, Finder, InDoubt, commit, must_lead, on_node
from tests.sim.workloads.fast_path import agrees, response_of

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.workloads.appends import Appends

MOST_IN_FLIGHT = 5
PRODUCE_VERSION = 9
MAX_MESSAGE_BYTES = 12 << 10
TRANSIENT = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Refusals that a client answers with another try."""
FOR_GOOD = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


class Limits:
    """What the topic's configuration says."""

    max_message_bytes = MAX_MESSAGE_BYTES
    max_decompressed_message_bytes = MAX_DECOMPRESSED_BYTES
    log_append_time = False
    timestamp_before_max_ms = 1 << 62
    timestamp_after_max_ms = 1 << 62
    is_compacted = False
    lockstep_locks = "ignore"
    compression_type = "producer"


LIMITS = Limits()


async def produce(node: Node, number: int, data: bytes) -> int:
    """As broker/network/connection.py: append by the fast path, or else as broker/produce/api/produce.py
    through the broker's `Appender`; answer after the commit."""
    must_lead(node)
    group = group_of(node)
    partition = group.partitions.get(number)
    if partition is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"partition {number}")
    reply = node.memory["fast"].append(partition, data) if node.world.options.fast_path else None
    if reply is not None:
        return await _committed(node, reply)
    try:
        appended = node.memory["appender"].append(partition, data, LIMITS, PRODUCE_VERSION)
    except RequestError as refusal:
        if refusal.error in TRANSIENT or refusal.error in FOR_GOOD:
            raise
        await _stands(node, group)
        raise
    await commit(node)
    return int(appended.base_offset)


async def _committed(node: Node, reply: PlainResponse) -> int:
    """The base offset in a reply of the fast path, which must say what became of the batch."""
    try:
        await commit(node)
    except InDoubt:
        if not agrees(reply, False):
            node.world.violate("the fast path answers", f"a lost batch was acknowledged at {node}")
        raise
    if not agrees(reply, True):
        node.world.violate("the fast path answers", f"a committed batch was not acknowledged at {node}")
    return response_of(reply).base_offset


async def _stands(node: Node, group: LogGroup) -> None:
    """A refusal that rests on the tail counts when the tail is committed, and nobody else leads."""
    await commit(node)
    if not (group.is_leader and group.has_lease):
        raise Elsewhere(-1)


class Producer:
    """One client's way to write. `number` in all of it is the group's number of a partition."""

    def __init__(self, workload: Appends, name: str) -> None:
        self._workload = workload
        self._world = workload.world
        self._name = name
        self._random = workload.world.random(f"producer {name}")
        self._finder = Finder(workload.world, f"leader for {name}")
        self._count = 0

    def batch(self, record_count: int, size: int, **producer: Any) -> tuple[bytes, bytes]:
        """(the batch, the value of its first record)."""
        builder = BatchBuilder(**producer)
        first = b""
        now_ms = int(self._world.now_s * 1000)
        for _ in range(record_count):
            self._count += 1
            value = VALUE_MARK + f"{self._name}.{self._count}".encode()
            first = first or value
            builder.append(timestamp_ms=now_ms, key=None, value=value)
            now_ms += 1
        if size:
            builder.append(timestamp_ms=now_ms, key=b"padding", value=self._random.randbytes(8) * (size // 8))
        return bytes(builder.build()), first

    def some_batch(self, **producer: Any) -> tuple[bytes, bytes]:
        """Mostly small, now and then as large as is allowed."""
        large = self._random.random() < 0.15
        size = self._random.randrange(1000, 10_000) if large else self._random.choice((0, 64, 400))
        return self.batch(self._random.choice((1, 1, 1, 2, 5)), size, **producer)

    async def attempt(self, write: Write, number: int) -> ErrorCode:
        """Send once; NONE when it is acknowledged, UNKNOWN_SERVER_ERROR when it is in doubt."""
        try:
            base_offset = await self._finder.ask(on_node(produce, number, write.data))
        except Elsewhere:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        except (InDoubt, Unanswered):
            write.doubtful = True
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except RequestError as refusal:
            if refusal.error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._workload.is_gone(number)
            return refusal.error
        self._workload.clients.acknowledged(write, number, base_offset)
        return ErrorCode.NONE

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * (0.5 + self._random.random()))


class PlainProducer(Producer):
    """Sends every batch once; some of them are bad."""

    async def one(self, number: int) -> bool:
        """One batch; was it acknowledged?"""
        kind = self._random.random()
        data, value = self.batch(1, 2 * MAX_MESSAGE_BYTES) if kind < 0.02 else self.some_batch()
        if 0.02 <= kind < 0.05:
            data = data[:-1] + bytes([data[-1] ^ 1])
        write = self._workload.clients.begin(data, value)
        error = await self.attempt(write, number)
        if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):
            self._workload.clients.refused(write)
        elif error is ErrorCode.NONE and kind < 0.05:
            self._world.violate("a bad batch is refused", f"{value!r} was acknowledged")
        return error is ErrorCode.NONE


class IdempotentProducer(Producer):
    """Sends every batch until it is acknowledged, several at a time, in sequence."""

    def __init__(self, workload: Appends, name: str, producer_id: int) -> None:
        super().__init__(workload, name)
        self._producer_id = producer_id
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._in_flight: dict[int, deque[asyncio.Task[None]]] = {}
        self._known_to: set[int] = set()

    async def one(self, number: int) -> None:
        """Send the next batch; returns when it is under way."""
        window = self._in_flight.setdefault(number, deque())
        # A broker takes any sequence of a producer that it does not know; Kafka's connections keep the order.
        depth = self._random.choice((1, 2, MOST_IN_FLIGHT)) if number in self._known_to else 1
        while window and (window[0].done() or len(window) >= depth):
            await window[0]
            window.popleft()
        if not window and self._random.random() < 0.05:
            self._epochs[number] = self._epochs.get(number, 0) + 1
            self._sequences[number] = 0
        sequence = self._sequences.get(number, 0)
        data, value = self.some_batch(
            producer_id=self._producer_id,
            producer_epoch=self._epochs.get(number, 0),
            base_sequence=sequence,
        )
        self._sequences[number] = sequence + int.from_bytes(data[57:61], "big")
        write = self._workload.clients.begin(data, value)
        window.append(self._world.clients.create_task(self._send(write, number, window), name=self._name))

    async def _send(self, write: Write, number: int, window: deque[asyncio.Task[None]]) -> None:
        """Until it is acknowledged, or there is nothing any more to send it to."""
        own = asyncio.current_task()
        while True:
            is_first = not window or window[0] is own or all(t.done() for t in _before(window, own))
            error = await self.attempt(write, number)
            if error is ErrorCode.NONE:
                self._known_to.add(number)
                return
            if error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._workload.clients.refused(write)
                return
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                if is_first:
                    text = f"{write} of partition {number} follows what was acknowledged; it is refused"
                    self._world.violate("a producer is forgotten", text)
            elif error is not ErrorCode.UNKNOWN_SERVER_ERROR and error not in TRANSIENT:
                self._world.violate("a good batch is taken", f"{write} of partition {number}: {error.name}")
            await self.back_off()

    async def finish(self) -> None:
        """Until everything under way is acknowledged."""
        for number in sorted(self._in_flight):
            for task in list(self._in_flight[number]):
                await task


def _before(window: deque[asyncio.Task[None]], own: asyncio.Task[None] | None) -> list[asyncio.Task[None]]:
    found = []
    for task in window:
        if task is own:
            break
        found.append(task)
    return found
