"""A log in memory for the tests of applications: several clients, locks as the broker keeps them, faults.

    memory_log = MemoryLog(partitions=4, seed=7)
    memory_log.fault_rate = 0.1
    client = TransactionClient("", "", Accounts(), log=memory_log.connect())

The rules are those of docs/locks.md, kept exactly (`memory_partition`). A test can change everything else
while the log runs: how often the outcome of an append stays unknown, which appends are rejected or fail, the
delay of messages, which subscriptions are suspended, gaps between offsets, which records are deleted. The
same seed and the same calls make the same choices. One event loop; nothing here is durable.
`MemoryConnection` is a client's connection to it.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from lockstep.kafka_client.connection import ClientError
from lockstep.protocol.lock_words import REJECTION_PREFIX
from lockstep.testing.memory_partition import MemoryPartition
from lockstep.transactions.draft import Name
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Chunk,
)
from lockstep.transactions.model import Committed, Record, Refusal, RequestId

__all__ = ["Fault", "MemoryConnection", "MemoryLog"]

_ARRIVAL_PROBABILITY: Final = 0.5
"""The probability that a pending append arrives, at each other request to the log."""
_MAX_GAP: Final = 3


class Fault(Enum):
    """The fate of an append whose response never comes."""

    LOST = "it did not arrive, and never will"
    NO_RESPONSE = "it arrived, the response did not"
    PENDING = "it may still arrive, until it is fenced"


class MemoryLog:
    """One topic. `connect` makes a client's connection."""

    def __init__(self, partitions: int = 4, *, seed: int = 0, topic: str = "memory") -> None:
        self.fault_rate = 0.0
        """Share of appends that meet a `Fault`, each kind as often."""
        self.fence_fault_rate = 0.0
        """Share of fences that fail, before or after they took effect."""
        self.gap_rate = 0.0
        """Share of appends behind which some offsets are left out, so that offsets are not dense."""
        self.max_delay_s = 0.0
        """The most that a request or a response takes; each delay is random, uniform from 0."""
        self.max_read_transactions = 100
        """LIMIT. Transactions of one read."""
        self._random = random.Random(seed)
        self._partitions = [MemoryPartition(topic, number) for number in range(partitions)]
        self._forced: deque[Fault | AppendFailed | AppendExpired | Refusal] = deque()
        self._requests: set[RequestId] = set()
        self._pending: dict[RequestId, AppendAttempt] = {}
        """The appends that may still arrive; no client waits for their responses."""
        self._fenced: set[RequestId] = set()
        self._suspended: set[int] = set()
        self._appended = 0
        self._changed = asyncio.Event()
        """An event that is set, and replaced, whenever a waiting reader should check again."""

    def connect(self) -> MemoryConnection:
        """A client's connection: a `lockstep.transactions.log.Log`."""
        return MemoryConnection(self)

    # -- faults that the test requests --------------------------------------------------------------------

    def fault_next(self, *faults: Fault) -> None:
        """The next appends meet these, one after the other."""
        self._forced += faults

    def fail_next(self, appends: int = 1) -> None:
        """The next appends fail: they are not in the log, and their clients know it."""
        self._forced += [AppendFailed("as the test wants it")] * appends

    def expire_next(self, appends: int = 1) -> None:
        """The next appends time out before they are sent."""
        self._forced += [AppendExpired("as the test wants it")] * appends

    def refuse_next(self, appends: int = 1, *, reason: str = "LOCK", is_final: bool = False) -> None:
        """The next appends are rejected, and no offset is named; with `is_final` they will never pass."""
        text = f"{REJECTION_PREFIX}reason={reason} record=0 as the test wants it"
        self._forced += [Refusal(reason, is_final, -1, None, False, None, text)] * appends

    def suspend_subscription(self, partition: int) -> None:
        """Readers get nothing from it until `resume_subscription`; one connection can be, too."""
        self._suspended.add(partition)

    def resume_subscription(self, partition: int) -> None:
        self._suspended.discard(partition)
        self.wake()

    def skip(self, partition: int, offsets: int = 1) -> None:
        """Leave out offsets, as a marker of Kafka's transactions does."""
        self._partitions[partition].skip(offsets)
        self.wake()

    def trim(self, partition: int, offset: int) -> None:
        """Delete the records below `offset`."""
        self._partitions[partition].trim(offset)

    def put(self, partition: int, *values: bytes, append_locks: Iterable[Name] = ()) -> int:
        """Append a batch of another producer, no transaction client; the offset of its last record."""
        raised = [name.encode() if isinstance(name, str) else name for name in append_locks]
        self._appended += 1
        records = [Record(value) for value in values]
        offset = self._partitions[partition].append(records, raised=raised, timestamp_ms=self._appended)
        self.wake()
        return offset

    def deliver_pending(self) -> int:
        """Lets all pending appends arrive; returns how many of them were appended."""
        return sum([self._deliver(request) for request in list(self._pending)])

    # -- the content of the log ---------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    @property
    def pending_appends(self) -> int:
        """Appends that may still arrive."""
        return len(self._pending)

    def entries(self, partition: int) -> list[Committed]:
        """All its committed transactions."""
        found = self._partitions[partition]
        return list(found.read(found.log_start_offset, len(found.entries) + 1).entries)

    def end(self, partition: int) -> int:
        return self._partitions[partition].next_offset

    def lock_version(self, partition: int, lock: Name) -> int:
        """The offset of the last record that raised the lock; -1 without one."""
        name = lock.encode() if isinstance(lock, str) else lock
        return self._partitions[partition].marks.get(name, -1)

    # -- for its connections ------------------------------------------------------------------------------

    def read(self, partition: int, position: int) -> Chunk:
        """Raises Trimmed."""
        return self._partitions[partition].read(position, self.max_read_transactions)

    def is_suspended(self, partition: int) -> bool:
        return partition in self._suspended

    @property
    def next_change(self) -> asyncio.Event:
        """Set at the next change of the log; the change after it sets another event."""
        return self._changed

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def delay_s(self) -> float:
        return self._random.uniform(0, self.max_delay_s)

    def begin(self, append: AppendAttempt) -> None:
        """ValueError for what no client may send: two appends of one request, or one without records."""
        if append.request in self._requests:
            raise ValueError(f"request {append.request} was used before")
        if not append.parts or not all(part.records for part in append.parts.values()):
            raise ValueError(f"request {append.request} has no records, or a part without any")
        if not all(0 <= number < self.partitions for number in append.parts):
            raise ValueError(f"request {append.request} names a partition that is not there")
        self._requests.add(append.request)

    def next_fault(self) -> Fault | AppendFailed | AppendExpired | Refusal | None:
        """The fate of the append that arrives now; other pending ones may come before it."""
        self._deliver_some()
        if self._forced:
            return self._forced.popleft()
        if self._random.random() < self.fault_rate:
            return self._random.choice(list(Fault))
        return None

    def leave_pending(self, append: AppendAttempt) -> None:
        if append.request not in self._fenced:
            self._pending[append.request] = append

    def store(self, append: AppendAttempt) -> Mapping[int, int]:
        """All parts or none; partition -> offset of the last record. Raises AppendRefused, AppendFailed."""
        if append.request in self._fenced:
            raise AppendFailed(f"request {append.request} was fenced")
        for number, part in append.parts.items():
            own = self._partitions[number]
            own.check(part)
            for other, locks in part.other_read_locks.items():
                if not 0 <= other < self.partitions:
                    own.refuse("UNKNOWN_PARTITION", f"other={own.topic}-{other}", is_final=True)
                self._partitions[other].check_locks(locks.hwm, (), locks.read_locks)
        self._appended += 1
        offsets = {}
        for number, part in append.parts.items():
            own = self._partitions[number]
            offsets[number] = own.append(
                part.records,
                raised=(*part.write_locks, *part.append_locks),
                request=append.request,
                timestamp_ms=self._appended,
            )
            if self._random.random() < self.gap_rate:
                own.skip(self._random.randint(1, _MAX_GAP))
        self.wake()
        return offsets

    def fence(self, append: AppendAttempt) -> Mapping[int, int]:
        """Rejects an append from now on, unless it has arrived, which may happen at this request. Returns the
        next offset of each of its partitions."""
        self._deliver_some()
        self._pending.pop(append.request, None)
        self._fenced.add(append.request)
        return {number: self._partitions[number].next_offset for number in append.parts}

    def fence_fault(self) -> Fault | None:
        if self._random.random() < self.fence_fault_rate:
            return self._random.choice((Fault.LOST, Fault.NO_RESPONSE))
        return None

    def _deliver_some(self) -> None:
        for request in list(self._pending):
            if self._random.random() < _ARRIVAL_PROBABILITY:
                self._deliver(request)

    def _deliver(self, request: RequestId) -> bool:
        """Append a delayed request; a rejection is reported to no client."""
        try:
            self.store(self._pending.pop(request))
        except AppendRefused:
            return False
        return True


class MemoryConnection:
    """One client's connection to a `MemoryLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._is_open = False
        self._suspended: set[int] = set()

    def suspend_subscription(self, partition: int) -> None:
        """Suspends it for this client alone; see `MemoryLog`."""
        self._suspended.add(partition)

    def resume_subscription(self, partition: int) -> None:
        self._suspended.discard(partition)
        self._log.wake()

    @property
    def topic_id(self) -> str:
        """The same for every log in memory."""
        return "memory"

    async def open(self) -> int:
        await asyncio.sleep(self._log.delay_s())
        self._is_open = True
        return self._log.partitions

    async def append(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Same as `Log.append`; ValueError for an append that no client may send."""
        log = self._require_open()
        log.begin(append)
        arrival_s = log.delay_s()
        try:
            await asyncio.sleep(min(arrival_s, timeout_s))
        except asyncio.CancelledError:
            log.leave_pending(append)
            raise
        fault = Fault.PENDING if arrival_s > timeout_s else log.next_fault()
        if isinstance(fault, AppendFailed | AppendExpired):
            raise fault
        if isinstance(fault, Refusal):
            raise AppendRefused(fault._replace(partition=min(append.parts)))
        if fault is Fault.PENDING:
            log.leave_pending(append)
        if fault in (Fault.PENDING, Fault.LOST):
            raise AppendUnknown(fault.value)
        refused: AppendRefused | None = None
        offsets: Mapping[int, int] = {}
        try:
            offsets = log.store(append)
        except AppendRefused as error:
            refused = error
        await self._send_response(fault, timeout_s - arrival_s)
        if refused is not None:
            raise refused
        return offsets

    async def fence(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Raises AppendUnknown."""
        log = self._require_open()
        arrival_s = log.delay_s()
        await asyncio.sleep(min(arrival_s, timeout_s))
        fault = Fault.LOST if arrival_s > timeout_s else log.fence_fault()
        if fault is Fault.LOST:
            raise AppendUnknown(fault.value)
        positions = log.fence(append)
        await self._send_response(fault, timeout_s - arrival_s)
        return positions

    async def read(self, partition: int, position: int, wait_s: float) -> Chunk:
        """Raises Trimmed."""
        log = self._require_open()
        deadline_s = asyncio.get_running_loop().time() + wait_s
        await asyncio.sleep(0)  # a client that polls lets other tasks run, too
        while True:
            next_change = log.next_change
            if not (partition in self._suspended or log.is_suspended(partition)):
                chunk = log.read(partition, position)
                if chunk.position > position:
                    await asyncio.sleep(log.delay_s())
                    return chunk
            try:
                async with asyncio.timeout_at(deadline_s):
                    await next_change.wait()
            except TimeoutError:
                return Chunk((), position)

    async def end(self, partition: int) -> int:
        log = self._require_open()
        await asyncio.sleep(log.delay_s())
        return log.end(partition)

    async def close(self) -> None:
        self._is_open = False

    def _require_open(self) -> MemoryLog:
        if not self._is_open:
            raise ClientError("not open")
        return self._log

    async def _send_response(self, fault: Fault | None, remaining_s: float) -> None:
        """Delays a response. Raises AppendUnknown where the fault loses it, or it comes after the timeout."""
        response_s = self._log.delay_s()
        await asyncio.sleep(min(response_s, remaining_s))
        if fault is Fault.NO_RESPONSE or response_s > remaining_s:
            raise AppendUnknown(Fault.NO_RESPONSE.value)
