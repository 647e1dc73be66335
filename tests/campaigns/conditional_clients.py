"""Clients that append under conditions to one topic, at the same time, and write down what came of it.

Owns: what is asked for, and asking until there is an answer. Each client is an idempotent producer with one
request under way. A batch whose answer is lost, or that nobody takes now, is sent again byte by byte: what
was stored is answered for with its offset. Where that takes too long, and sometimes at once, the client goes
on as another producer and the outcome is open. Each knows of a partition what it has read itself, so its
marks lag behind; sometimes it is told by another how far that one has read.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from lockstep.kafka_client.client import Client, TopicMetadata
from lockstep.kafka_client.connection import BrokerError, ClientError, ConnectionFailed, TimedOut
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, read_header
from lockstep.protocol.records.record import BatchBuilder, iter_records
from tests.campaigns.conditional_history import Conditions, Operation, refusal
from tests.campaigns.locks import NEVER, RETRY

AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Nothing was decided: somebody else leads, or will soon."""
PAUSE_S: Final = 0.02
GIVE_UP_S: Final = 60.0
IMPATIENT_SHARE: Final = 0.02
"""Of the appends, those whose answer nobody waits for longer than a moment."""
IMPATIENT_S: Final = 0.03
IDLE_SHARE: Final = 0.01
"""Of the operations, those before which a client rests: what it knows of leaders then is old."""
IDLE_S: Final = 2.0
LOCKS: Final = [b"seat/%d" % number for number in range(6)]


class Broken(Exception):
    """An answer that no client should ever get."""


class History:
    """What the clients of one topic share: the count of operations, and what was ever seen."""

    def __init__(self, topic: TopicMetadata, operations: int, rng: random.Random) -> None:
        self.topic = topic
        self.partitions = len(topic.partitions)
        self.rng = rng
        self.left = operations
        self.numbers: Iterator[int] = itertools.count()
        self.operations: list[Operation] = []
        self.ends = [0] * self.partitions
        """Of each partition, the highest end that anybody was told of."""
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.couples = {0: 1, 1: 2, 2: 0} if self.partitions > 2 and rng.random() < 0.2 else {0: 1, 1: 0}
        """Whose read locks a partition's records may ask for; the others are judged alone."""

    def next_operation(self, client: int, partition: int, asked: Sequence[Conditions] = ()) -> Operation:
        self.left -= 1
        operation = Operation(next(self.numbers), client, partition, asked)
        self.operations.append(operation)
        operation.call_ns = time.monotonic_ns()
        return operation

    def told(self, operation: Operation, end: int) -> None:
        operation.return_ns = time.monotonic_ns()
        self.ends[operation.partition] = max(self.ends[operation.partition], end)


class Writer:
    """One client, for one history after the other."""

    def __init__(self, number: int, client: Client) -> None:
        self.number = number
        self._client = client
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._positions: list[int] = []
        self._topic: TopicMetadata

    async def run(self, history: History) -> None:
        """Until the history is long enough, or somebody got an answer that nobody should."""
        self._topic = history.topic
        self._sequences = {}
        self._positions = [0] * history.partitions
        try:
            while history.left > 0:
                if history.rng.random() < IDLE_SHARE:
                    await asyncio.sleep(history.rng.uniform(0, IDLE_S))
                await self._turn(history)
        except Broken as error:
            history.problems.append(str(error))
            history.left = 0

    async def _turn(self, history: History) -> None:
        """An append, after some refusals a read, or a read alone."""
        rng, partition = history.rng, history.rng.randrange(history.partitions)
        if rng.random() < 0.2:
            await self._read(history, partition)
            return
        refused = await self._append(history, partition)
        if refused is not None and history.left > 0 and rng.random() < 0.6:
            await self._read(history, refused)

    async def read_all(self, history: History) -> dict[int, list[bytes]]:
        """Every partition from its first record to its end, as reads of the history."""
        self._topic = history.topic
        self._positions = [0] * history.partitions
        found: dict[int, list[bytes]] = {partition: [] for partition in range(history.partitions)}
        try:
            for partition, values in found.items():
                await self._read_partition(history, partition, values)
        except Broken as error:
            history.problems.append(str(error))
        return found

    async def _read_partition(self, history: History, partition: int, values: list[bytes]) -> None:
        end, deadline = -1, time.monotonic() + GIVE_UP_S
        while len(values) != end:
            if time.monotonic() > deadline:
                raise Broken(f"partition {partition} has {len(values)} records, {end} were seen")
            operation = await self._read(history, partition)
            end = max(operation.seen or 0, history.ends[partition])
            values += operation.values

    # --- reading --------------------------------------------------------------------------------------------

    async def _read(self, history: History, partition: int) -> Operation:
        """What there is from the client's position on; nobody may have answered in time."""
        operation = history.next_operation(self.number, partition)
        operation.first = self._positions[partition]
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            try:
                answer = self._client.fetch(self._topic, {partition: operation.first}, max_wait_ms=0)
                (fetched,) = await answer
            except ClientError as error:
                await self._look_again(history, error)
                continue
            operation.values = _values(fetched.records, operation.first)
            operation.seen = fetched.high_watermark
            self._positions[partition] += len(operation.values)
            if self._positions[partition] > operation.seen:
                raise Broken(
                    f"read up to {self._positions[partition]}, the high watermark is {operation.seen}"
                )
            history.told(operation, operation.seen)
            history.counts["reads"] += 1
            return operation
        history.counts["unanswered"] += 1
        return operation

    async def _look_again(self, history: History, error: ClientError) -> None:
        """After an answer that decides nothing. Raises Broken for any other."""
        if isinstance(error, BrokerError):
            if error.code not in AGAIN:
                raise Broken(str(error)) from None
        elif not isinstance(error, ConnectionFailed):
            raise Broken(str(error)) from None
        history.counts["tried again"] += 1
        await asyncio.sleep(PAUSE_S)
        try:
            (self._topic,) = await self._client.topics([history.topic.name])
        except ClientError:
            return  # the next try tells

    # --- appending ------------------------------------------------------------------------------------------

    async def _append(self, history: History, partition: int) -> int | None:
        """The partition to read on in, after a refusal that says so."""
        rng = history.rng
        if self._producer is None:
            self._producer = await self._new_producer(history)
        sequence = self._sequences.get(partition, 0)
        operation = history.next_operation(self.number, partition, draw(history, partition, self._positions))
        batch = self._batch(history, operation, sequence)
        deadline = time.monotonic() + GIVE_UP_S
        patience_s = rng.uniform(0, IMPATIENT_S) if rng.random() < IMPATIENT_SHARE else None
        is_under_way = False
        while time.monotonic() < deadline:
            try:
                async with asyncio.timeout(patience_s):
                    offset = await self._client.produce(self._topic, partition, batch)
            except TimeoutError:
                break
            except BrokerError as error:
                if error.code in (RETRY, NEVER) and (found := refusal(error.code, str(error))) is not None:
                    if is_under_way and error.code == NEVER:
                        break  # of this try; what it found wrong may be right when an earlier one gets there
                    operation.refused = found
                    history.told(operation, 0)
                    history.counts[f"refused {found['reason']}"] += 1
                    return int(found["partition"]) if error.code == RETRY else None
                await self._look_again(history, error)
            except ClientError as error:
                is_under_way = is_under_way or isinstance(error, TimedOut)
                await self._look_again(history, error)
            else:
                operation.stored = offset
                history.told(operation, offset + len(operation.asked))
                self._sequences[partition] = sequence + len(operation.asked)
                history.counts["stored"] += 1
                return None
        history.counts["open"] += 1
        self._producer, self._sequences = None, {}
        return None

    def _batch(self, history: History, operation: Operation, sequence: int) -> bytes:
        assert self._producer is not None
        producer_id, producer_epoch = self._producer
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        for place, each in enumerate(operation.asked):
            other = f"{history.topic.name}-{each.elsewhere_partition}"
            builder.append(operation.value(place), headers=each.headers(other), timestamp_ms=-1)
        return builder.build()

    async def _new_producer(self, history: History) -> tuple[int, int]:
        while True:
            try:
                broker = await self._client.any_broker()
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                answer = await broker.call(request, InitProducerIdResponse)
                if answer.error_code:
                    raise BrokerError(answer.error_code, "a producer id")
                return answer.producer_id, answer.producer_epoch
            except ClientError as error:
                await self._look_again(history, error)


def _values(records: bytes | bytearray | memoryview, first: int) -> list[bytes]:
    """Of whole batches, from an offset on, which must follow each other. Raises Broken."""
    values: list[bytes] = []
    at = 0
    while len(records) - at > BATCH_HEADER_BYTES:
        header = read_header(records, at)
        if at + header.total_bytes > len(records):
            break
        for record in iter_records(records, at):
            if record.offset < first:
                continue
            if record.offset != first + len(values) or record.value is None:
                raise Broken(f"offset {record.offset} where {first + len(values)} comes next")
            values.append(record.value)
        at += header.total_bytes
    return values


# --- what is asked for --------------------------------------------------------------------------------------


def draw(history: History, partition: int, positions: Sequence[int]) -> list[Conditions]:
    """The records of one batch, by what a client knows."""
    rng, asked = history.rng, []
    for place in range(rng.choice([1, 1, 1, 1, 2, 3])):
        each = Conditions()
        kind = rng.choice(["write", "write", "write", "read", "append", "read and write", "expected", "none"])
        for lock in ("write", "read", "append"):
            if lock in kind:
                each.locks[lock] = rng.sample(LOCKS, rng.choice([1, 1, 1, 2]))
        if each.locks["write"] or each.locks["read"]:
            each.hwm = _mark(history, partition, positions)
        if kind == "expected":
            each.expected = max(0, history.ends[partition] + place + rng.choice([0, 0, 0, 0, -1, 1]))
        other = history.couples.get(partition)
        if other is not None and rng.random() < 0.2:
            each.elsewhere_partition = other if rng.random() < 0.9 else partition
            each.elsewhere = _mark(history, each.elsewhere_partition, positions), rng.choice(LOCKS)
        asked.append(each)
    if len(asked) > 1 and rng.random() < 0.5:
        name = b"c/1/%d" % rng.randrange(1 << 40)
        for part, each in enumerate(asked, 1):
            each.request = name, part, len(asked)
    return asked


def _mark(history: History, partition: int, positions: Sequence[int]) -> int:
    """Mostly what the client has read, or what somebody has; sometimes less, sometimes more than there is."""
    rng, known, told = history.rng, positions[partition] - 1, history.ends[partition] - 1
    drawn = rng.random()
    if drawn < 0.5:
        return known
    if drawn < 0.85:
        return told
    if drawn < 0.96:
        return rng.randint(-1, max(known, told))
    return told + rng.randint(1, 3)
