"""Transactional batches that wait until their coordinator has verified the partition.

Owns: `VerificationQueue`, the batches that wait. Invariants: batches of one producer in one partition keep
their order, as later ones queue behind the one that is verified, and none is appended in the place of an
earlier one that was rejected; a change of leadership rejects the waiting batches. So does a marker that is
written meanwhile, unless verification adds the partition: then the coordinator is requested again. A waiting
batch is a copy, which pins no receive buffer, and the bytes of all of them are limited. A batch that needs no
verification is appended at once; waiting batches are appended in time slices, as they may need decompression.
Does not: send requests to coordinators (`verification_client.py`), or build responses
(`broker/produce/api/produce.py`).
Source: KIP-890; Kafka's ReplicaManager, VerificationGuard and VerificationStateEntry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from struct import Struct as Binary
from typing import Final

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.produce.append_result import (
    AppendOutcome,
    AppendResult,
    DelayedAppend,
    VerificationGuardMismatch,
    VerificationRequired,
)
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.batch_validation import AppendLimits
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.transactions.verification_client import (
    ADDS_MIN_PRODUCE_VERSION,
    TopicPartition,
    Verification,
    VerificationRequest,
    producer_error,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, MalformedBatch, peek_header
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer

log = logging.getLogger("lockstep.transactions")

MAX_WAITING_BYTES: Final = 64 << 20
"""LIMIT. Of all waiting batches on this node; further ones are rejected, and their clients retry."""
BATCH_OVERHEAD_BYTES: Final = 1024
"""What a waiting batch counts for beside its bytes."""
PRODUCER_AT: Final = 43
_PRODUCER: Final = Binary(">qh")

Key = tuple[int, int, int]
"""Log group id, the partition's local id, producer id."""


class PendingBatch(DelayedAppend):
    """One batch that waits."""

    __slots__ = ("limits", "produce_version", "records", "request")

    def __init__(
        self, request: VerificationRequest, records: bytes, limits: AppendLimits, produce_version: int
    ) -> None:
        super().__init__()
        self.request = request
        self.records = records
        self.limits = limits
        self.produce_version = produce_version

    @property
    def counted_bytes(self) -> int:
        return len(self.records) + BATCH_OVERHEAD_BYTES


class _Queue:
    """The batches of one producer to one partition, the first of which is being verified."""

    __slots__ = ("appender", "batches", "guard", "key", "log", "term")

    def __init__(
        self, key: Key, appender: Appender, log_: PartitionLog, unverified: VerificationRequired
    ) -> None:
        self.key = key
        self.appender = appender
        self.log = log_
        self.batches: deque[PendingBatch] = deque()
        self.guard = unverified.guard
        self.term = appender.group.term

    @property
    def is_stale(self) -> bool:
        """True where another leader may have written here since the request."""
        group = self.appender.group
        return not group.is_leader or group.term != self.term


class VerificationQueue:
    """See the module. Args: appenders: by data group."""

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        verification: Verification,
        loop: asyncio.AbstractEventLoop,
        time_slicer: TimeSlicer,
    ) -> None:
        self._cluster = cluster
        self._appenders = appenders
        self._verification = verification
        self._loop = loop
        self._time_slicer = time_slicer
        self._queues: dict[Key, _Queue] = {}
        self._unverified: list[_Queue] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting_bytes = 0

    def appenders(self, transactional_id: str) -> VerifyingAppenders:
        """The append paths for one request of this transactional id."""
        return VerifyingAppenders(self, self._appenders, transactional_id)

    def append(
        self,
        appender: Appender,
        partition: PartitionLog,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
        transactional_id: str,
    ) -> AppendResult | DelayedAppend:
        """Appends like `Appender.append_transactional`, or queues the batch until it is verified."""
        if self._queues and len(records) >= BATCH_HEADER_BYTES:
            producer_id, epoch = _PRODUCER.unpack_from(records, PRODUCER_AT)
            queue = self._queues.get((appender.group.group_id, partition.local_id, producer_id))
            if queue is not None:
                request = _verification_request(transactional_id, producer_id, epoch, produce_version)
                return self._queue_batch(queue, request, records, limits, produce_version)
        try:
            unverified = appender.append_transactional(
                partition, records, limits, produce_version, transactional_id
            )
        except RequestError:
            track_lowest_sequence(appender, partition, records)
            raise
        if isinstance(unverified, AppendResult):
            return unverified
        assert isinstance(unverified, VerificationRequired), "a guard is compared in a retry only"
        request = _verification_request(
            transactional_id, unverified.producer_id, unverified.producer_epoch, produce_version
        )
        topic_partition = self._topic_partition(partition)
        codes = self._verification.verify_now(request, [topic_partition])
        if codes is None:
            key = appender.group.group_id, partition.local_id, unverified.producer_id
            queue = _Queue(key, appender, partition, unverified)
            batch = self._queue_batch(queue, request, records, limits, produce_version)
            self._queues[key] = queue
            self._schedule_verification(queue)
            return batch
        if codes[topic_partition] is not ErrorCode.NONE:
            raise producer_error(codes[topic_partition], produce_version)
        appended = appender.append_transactional(
            partition,
            records,
            limits,
            produce_version,
            transactional_id,
            verified=True,
            guard=unverified.guard,
        )
        assert isinstance(appended, AppendResult), "no marker was written since"
        return appended

    # --- waiting --------------------------------------------------------------------------------------------

    def _queue_batch(
        self,
        queue: _Queue,
        request: VerificationRequest,
        records: Buffer,
        limits: AppendLimits,
        produce_version: int,
    ) -> PendingBatch:
        if self.waiting_bytes + len(records) + BATCH_OVERHEAD_BYTES > MAX_WAITING_BYTES:
            track_lowest_sequence(queue.appender, queue.log, records)
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, "too many batches wait for their coordinators")
        batch = PendingBatch(request, bytes(records), limits, produce_version)
        self.waiting_bytes += batch.counted_bytes
        queue.batches.append(batch)
        return batch

    def _schedule_verification(self, queue: _Queue) -> None:
        """Verifies it with all others of this iteration: partitions of one transaction share a request."""
        if not self._unverified:
            self._loop.call_soon(self._verify_all)
        self._unverified.append(queue)

    def _verify_all(self) -> None:
        unverified, self._unverified = self._unverified, []
        requests: dict[VerificationRequest, list[_Queue]] = {}
        for queue in unverified:
            requests.setdefault(queue.batches[0].request, []).append(queue)
        for request, queues in requests.items():
            task = self._loop.create_task(self._verify(request, queues))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _verify(self, request: VerificationRequest, queues: list[_Queue]) -> None:
        topic_partitions = [self._topic_partition(queue.log) for queue in queues]
        codes = await self._verification.verify(request, topic_partitions)
        self._time_slicer.run_steps(
            self._append_steps(request, queues, [codes[each] for each in topic_partitions])
        )

    def _append_steps(
        self, request: VerificationRequest, queues: list[_Queue], codes: list[ErrorCode]
    ) -> Iterator[None]:
        """Appends the batches of one queue after the other, one batch each step."""
        for queue, code in zip(queues, codes, strict=True):
            try:
                yield from self._append_waiting(queue, request, code)
            except Exception:  # the other partitions continue
                log.exception("batches that waited for a coordinator")
                self._reject_all(queue, RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed"))

    def _append_waiting(self, queue: _Queue, request: VerificationRequest, code: ErrorCode) -> Iterator[None]:
        """Appends or rejects the waiting batches; a batch of another epoch or id is verified by itself."""
        while queue.batches:
            yield
            if not queue.batches:
                break  # rejected meanwhile: the broker stops
            rejection = self._rejection_of(queue)
            if rejection is not None:
                self._reject_all(queue, rejection)
                return
            batch = queue.batches[0]
            is_verified = batch.request == request
            outcome: AppendOutcome
            try:
                if is_verified and code is not ErrorCode.NONE:
                    raise producer_error(code, batch.produce_version)
                appended = queue.appender.append_transactional(
                    queue.log,
                    batch.records,
                    batch.limits,
                    batch.produce_version,
                    batch.request.transactional_id,
                    verified=is_verified,
                    guard=queue.guard if is_verified else None,
                )
            except RequestError as error:
                track_lowest_sequence(queue.appender, queue.log, batch.records)
                outcome = error
            else:
                if isinstance(appended, AppendResult):
                    outcome = appended
                elif isinstance(appended, VerificationGuardMismatch) and not request.add:
                    outcome = appended.error()
                else:  # if it is a mismatch, the marker may be that of the transaction before
                    queue.guard = appended.guard
                    self._schedule_verification(queue)
                    return
            self._complete(queue, outcome)
        self._queues.pop(queue.key, None)

    def _rejection_of(self, queue: _Queue) -> RequestError | None:
        """Returns the error that rejects all waiting batches, whatever the response; None: there is none."""
        if queue.is_stale:
            return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node no longer leads the partition")
        topic_id, group_id = queue.log.topic_id, queue.key[0]
        if self._cluster.open_partition(topic_id, group_id, queue.log.index) is not queue.log:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return RequestError(error, error.message)
        return None

    def _reject_all(self, queue: _Queue, rejection: RequestError) -> None:
        while queue.batches:
            self._complete(queue, rejection)
        self._queues.pop(queue.key, None)

    def _complete(self, queue: _Queue, outcome: AppendOutcome) -> None:
        batch = queue.batches.popleft()
        self.waiting_bytes -= batch.counted_bytes
        batch.on_outcome(outcome)

    def _topic_partition(self, partition: PartitionLog) -> TopicPartition:
        topic = self._cluster.topic_by_id(partition.topic_id)
        return ("" if topic is None else topic.name), partition.index

    def stop(self) -> None:
        """Rejects all waiting batches with NOT_LEADER_OR_FOLLOWER: the broker stops."""
        self._unverified.clear()
        for task in self._tasks:
            task.cancel()
        rejection = RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node stops")
        for queue in list(self._queues.values()):
            self._reject_all(queue, rejection)


class VerifyingAppenders:
    """The append paths as a request of one transactional id finds them, by data group."""

    __slots__ = ("_appenders", "_transactional_id", "_verification_queue")

    def __init__(
        self, verification_queue: VerificationQueue, appenders: Mapping[int, Appender], transactional_id: str
    ) -> None:
        self._verification_queue = verification_queue
        self._appenders = appenders
        self._transactional_id = transactional_id

    def __getitem__(self, group_id: int) -> _VerifyingAppender:
        return _VerifyingAppender(self._verification_queue, self._appenders[group_id], self._transactional_id)


class _VerifyingAppender:
    __slots__ = ("_appender", "_transactional_id", "_verification_queue")

    def __init__(
        self, verification_queue: VerificationQueue, appender: Appender, transactional_id: str
    ) -> None:
        self._verification_queue = verification_queue
        self._appender = appender
        self._transactional_id = transactional_id

    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> AppendResult | DelayedAppend:
        """See `VerificationQueue.append`."""
        return self._verification_queue.append(
            self._appender, partition, records, limits, produce_version, self._transactional_id
        )


def _verification_request(
    transactional_id: str, producer_id: int, epoch: int, produce_version: int
) -> VerificationRequest:
    return VerificationRequest(
        transactional_id, producer_id, epoch, produce_version >= ADDS_MIN_PRODUCE_VERSION
    )


def track_lowest_sequence(appender: Appender, partition: PartitionLog, records: Buffer) -> None:
    """The batch is rejected, for whatever reason: one behind it must not begin here in its place."""
    with contextlib.suppress(MalformedBatch):
        appender.producers.track_lowest_sequence(partition.local_id, peek_header(records))
