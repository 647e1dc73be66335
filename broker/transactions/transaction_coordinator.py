"""The transaction coordinator of one data log group: requests become records and markers.

Owns: `TransactionCoordinator`. Invariants: what is known of an id changes by replay alone; a response waits
for the commit; requests for one id are done one after the other (`request_queue.py`), and what begins to end
a transaction continues until every partition has its marker, even if no request waits for it. Where all
partitions of a transaction are of this log group, its markers and the record that it is over are one entry:
nothing is ever half ended. Where they are not, the decision is one entry, with the markers of this log group;
the next leader next finds it and continues (`load`). Does not: follow the leadership
(`broker/coordination/`), decide what is allowed (`transaction_rules.py`), reach other log groups
(`MarkerWriter`), or measure time (`transaction_expiration.py`). Source: Kafka's TransactionCoordinator;
docs/decisions/0020-transactions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.process.log_text import printable
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions.request_queue import KeyedQueue, PendingResult, Work, set_error
from lockstep.broker.transactions.transaction_records import (
    PREPARED,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    record,
)
from lockstep.broker.transactions.transaction_rules import (
    Identity,
    add_partitions,
    begin,
    check_added,
    check_identity,
    complete,
    end_needs_new_id,
    fence,
    fence_needs_new_id,
    init_needs_new_id,
    initialize,
    is_expired,
    prepare_end,
)
from lockstep.broker.transactions.transaction_state import TransactionsState
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import BatchHeader
from lockstep.protocol.records.record import key_value_batch
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import BatchTooLarge, NotLeader, StorageError

log = logging.getLogger("lockstep.transactions")

SERVED_VERSION: Final = 2
"""The transaction version that the coordinator goes by where it aborts itself; Kafka 4.4.0 has it, too."""
MAX_PARTITIONS_PER_ENTRY: Final = 1_000
"""LIMIT. Partitions ended in one entry: some 150 bytes each must fit a frame of the smallest segments."""
ROOM_TO_END: Final = 1_024
"""Room kept in an entry so that what has begun can be ended: the record of the end is a little longer."""
RETRY_SECONDS: Final = 0.05
"""Between two tries to write what has to be written, where the disk or a majority has no room for it."""


class MarkerWriter(Protocol):
    """Writes markers to other log groups; `marker_sender.MarkerSender`."""

    async def write(self, partitions: Sequence[TopicPartition], marker: TxnMarkerEntry) -> None:
        """Returns when every partition has it committed, however long that takes; those of deleted topics
        count as done. Raises RequestError where one knows of a newer coordinator or producer; the others have
        it.
        """


class ProducerIdSource(Protocol):
    """`producer_id_blocks.ProducerIds`."""

    async def take(self) -> int:
        """An id that no producer ever had. Raises StorageError."""


class _PendingAddition:
    """Partitions that wait to be added: one record for all requests until the id's queue reaches them.

    A producer of transaction version 2 adds each partition by its first batch, all partitions at once.
    """

    __slots__ = ("producer", "results", "topic_partitions", "version")

    def __init__(self, producer: Identity, version: int) -> None:
        self.producer = producer
        self.version = version
        self.topic_partitions: dict[TopicPartition, None] = {}
        self.results: list[PendingResult] = []

    def complete(self, error: Exception | None) -> None:
        """Completes the responses of all requests."""
        for result in self.results:
            if error is None:
                _complete(result, None)
            else:
                set_error(result, error)


class TransactionCoordinator:
    """See the module.

    Args:
        partition_of: the partition of `__transaction_state` that holds an id's records; None: none here.
        appender: the append path of the log group, whose clock is the coordinator's.
    """

    def __init__(
        self,
        state: TransactionsState,
        partition_of: Callable[[str], PartitionLog | None],
        cluster: MetadataCache,
        appender: Appender,
        markers: MarkerWriter,
        producer_ids: ProducerIdSource,
    ) -> None:
        self.group = appender.group
        self.state = state
        self.not_serving_error = ErrorCode.NOT_COORDINATOR
        """The error while this is not the coordinator, or has not loaded its state yet; NONE when it
        serves."""
        self._partition_of = partition_of
        self._cluster = cluster
        self._appender = appender
        self._markers = markers
        self._producer_ids = producer_ids
        self._loop = asyncio.get_running_loop()
        self._request_queue = KeyedQueue(self._loop)
        self._pending_additions: dict[str, _PendingAddition] = {}
        """The last request of an id's queue, where it adds partitions and does not run yet."""

    # --- lifecycle ----------------------------------------------------------------------------------------

    def prepare_load(self) -> None:
        """The leadership is here; what was appended before is not all replayed."""
        self.not_serving_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def load(self) -> None:
        """All is replayed: serve, and finish what was decided elsewhere or before."""
        self.not_serving_error = ErrorCode.NONE
        for transactional_id in list(self.state.prepared_ids):
            self._request_queue.enter(transactional_id, partial(self._finish_found, transactional_id))

    def resign(self) -> None:
        """Rejects all waiting requests: the leadership is lost or the broker stops, and the next leader
        continues."""
        self.not_serving_error = ErrorCode.NOT_COORDINATOR
        adding, self._pending_additions = self._pending_additions, {}
        for each in adding.values():
            each.complete(self._not_here())
        self._request_queue.close(self._not_here)

    def time_ms(self) -> int:
        """The time to write into records. Like the log's it never goes back."""
        return max(self._appender.clock_ms(), self.group.time_ms)

    def clock_ms(self) -> int:
        """The time by which expiration is decided: by the log's time, everything would expire after one frame
        with a future time."""
        return self._appender.clock_ms()

    # --- requests -----------------------------------------------------------------------------------------

    async def init(self, transactional_id: str, timeout_ms: int, expected: Identity | None) -> Identity:
        """An identity for a producer; its predecessor is fenced, its transaction aborted. Raises
        RequestError."""
        found: Identity = await self._run(
            transactional_id, partial(self._init, transactional_id, timeout_ms, expected)
        )
        return found

    async def add(
        self, transactional_id: str, producer: Identity, partitions: Sequence[TopicPartition], version: int
    ) -> None:
        """Partitions take part in the producer's transaction. Raises RequestError."""
        adding = self._pending_additions.get(transactional_id)
        if adding is None or (adding.producer, adding.version) != (producer, version):
            adding = _PendingAddition(producer, version)
            self._request_queue.enter(transactional_id, partial(self._add, transactional_id, adding))
            self._pending_additions[transactional_id] = adding
        adding.topic_partitions.update(dict.fromkeys(partitions))
        result: PendingResult = self._loop.create_future()
        adding.results.append(result)
        await self._request_queue.wait_for(transactional_id, result)

    async def verify(
        self, transactional_id: str, producer: Identity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns whether the partitions take part. Raises RequestError."""
        found: dict[TopicPartition, ErrorCode] = await self._run(
            transactional_id, partial(self._verify, transactional_id, producer, partitions)
        )
        return found

    def verify_now(
        self, transactional_id: str, producer: Identity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode] | None:
        """The same at once; None where something is under way for the id. Raises RequestError."""
        if not self._request_queue.is_free(transactional_id):
            return None
        return check_added(self.state.get(transactional_id), producer, partitions)

    async def end(self, transactional_id: str, producer: Identity, commit: bool, version: int) -> Identity:
        """The producer commits or aborts its transaction; who it is from now on. Raises RequestError."""
        found: Identity = await self._run(
            transactional_id, partial(self._end, transactional_id, producer, commit, version)
        )
        return found

    def abort_overdue(self, transactional_id: str, serial: int) -> None:
        """Fences the producer of a transaction that has timed out and aborts it, if it is still open then."""
        if self._request_queue.is_free(transactional_id):
            self._request_queue.enter(
                transactional_id, partial(self._abort_overdue, transactional_id, serial)
            )

    def remove_expired(self, transactional_id: str, expiration_ms: int) -> None:
        """Removes an id that was not used for long, if it still was not used by then."""
        if self._request_queue.is_free(transactional_id):
            work = partial(self._remove_expired, transactional_id, expiration_ms)
            self._request_queue.enter(transactional_id, work)

    async def _run(self, transactional_id: str, work: Work) -> Any:
        self._pending_additions.pop(transactional_id, None)  # later partitions come after this request
        return await self._request_queue.run(transactional_id, work)

    # --- one request of an id at a time ---------------------------------------------------------------------

    async def _init(
        self, transactional_id: str, timeout_ms: int, expected: Identity | None, result: PendingResult
    ) -> None:
        current = self.state.get(transactional_id)
        if current is not None:
            check_identity(current, expected)
            if current.state is TransactionState.ONGOING:
                await self._fence(transactional_id, current)
                current = self.state.get(transactional_id)
        if current is None:
            metadata = begin(await self._new_producer_id(), timeout_ms, self.time_ms())
        else:
            fresh_id = await self._new_producer_id() if init_needs_new_id(current, expected) else None
            metadata = initialize(current, expected, fresh_id, timeout_ms, self.time_ms())
        await self._write(transactional_id, metadata)
        _complete(result, (metadata.producer_id, metadata.producer_epoch))

    async def _add(self, transactional_id: str, adding: _PendingAddition, result: PendingResult) -> None:
        if self._pending_additions.get(transactional_id) is adding:
            del self._pending_additions[transactional_id]
        try:
            await self._take_part(transactional_id, adding)
        except Exception as error:
            adding.complete(error)
            raise
        except asyncio.CancelledError:
            adding.complete(self._not_here())
            raise
        adding.complete(None)

    async def _take_part(self, transactional_id: str, adding: _PendingAddition) -> None:
        topic_partitions = list(adding.topic_partitions)
        current = self.state.get(transactional_id)
        metadata = add_partitions(current, adding.producer, topic_partitions, adding.version, self.time_ms())
        if metadata is not None:
            _, batch, _ = self._batch(transactional_id, metadata)
            if len(batch) + ROOM_TO_END > self._cluster.settings.largest_batch_bytes:
                text = f"{len(metadata.partitions)} partitions are too many for one transaction"
                raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            await self._write(transactional_id, metadata)

    async def _verify(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Sequence[TopicPartition],
        result: PendingResult,
    ) -> None:
        _complete(result, check_added(self.state.get(transactional_id), producer, partitions))

    async def _end(
        self, transactional_id: str, producer: Identity, commit: bool, version: int, result: PendingResult
    ) -> None:
        current = self.state.get(transactional_id)
        fresh_id = await self._new_producer_id() if end_needs_new_id(current, version) else None
        prepared = prepare_end(current, producer, commit, version, fresh_id, self.time_ms())
        if prepared is None:
            assert current is not None
            _complete(result, (current.producer_id, current.producer_epoch))
            return
        after = complete(prepared, prepared.update_ms)
        next_identity = after.producer_id, after.producer_epoch
        await self._end_all(transactional_id, prepared, lambda: _complete(result, next_identity))

    async def _finish_found(self, transactional_id: str, result: PendingResult) -> None:
        prepared = self.state.get(transactional_id)
        if prepared is not None and prepared.state in PREPARED:
            log.info("%s: ending a transaction that was decided before", printable(transactional_id))
            await self._finish(transactional_id, prepared, prepared.partitions)

    async def _abort_overdue(self, transactional_id: str, serial: int, result: PendingResult) -> None:
        current = self.state.get(transactional_id)
        if current is not None and self.state.serial(transactional_id) == serial:
            log.info(
                "%s: the transaction of producer %d has taken longer than %d ms and is aborted",
                printable(transactional_id),
                current.producer_id,
                current.timeout_ms,
            )
            await self._fence(transactional_id, current)

    async def _remove_expired(self, transactional_id: str, expiration_ms: int, result: PendingResult) -> None:
        current = self.state.get(transactional_id)
        if current is not None and is_expired(current, self.clock_ms(), expiration_ms):
            await self._write(transactional_id, None)

    # --- the end of a transaction ---------------------------------------------------------------------------

    async def _fence(self, transactional_id: str, current: TransactionMetadata) -> None:
        """Abort the transaction under way for its producer. Raises RequestError; returns when it is over."""
        fresh_id = await self._new_producer_id() if fence_needs_new_id(current, SERVED_VERSION) else None
        await self._end_all(transactional_id, fence(current, SERVED_VERSION, fresh_id, self.time_ms()))

    async def _end_all(
        self,
        transactional_id: str,
        prepared: TransactionMetadata,
        decided: Callable[[], None] = lambda: None,
    ) -> None:
        """Writes the decision's marker to every partition; `decided` is called once the decision is
        committed.

        On a full disk only what has begun must end: an abort of nothing leaves alone what is kept for that.
        Raises RequestError where nothing has changed. Returns when it is over.
        """
        own, others = self._split_partitions(prepared.partitions)
        recorded = prepared if others else complete(prepared, prepared.update_ms)
        together = len(own) <= MAX_PARTITIONS_PER_ENTRY and self._append_end(
            transactional_id, prepared, own, recorded
        )
        if not together:
            self._append(transactional_id, prepared, reserved=bool(prepared.partitions))
        await self._committed()
        decided()
        if others or not together:
            await self._finish(transactional_id, prepared, others if together else prepared.partitions)

    def _append_end(
        self,
        transactional_id: str,
        prepared: TransactionMetadata,
        own: Sequence[PartitionLog],
        recorded: TransactionMetadata,
    ) -> bool:
        """Append the markers of partitions of this log group and a record, all or nothing.

        False: not possible, they are to be ended one by one. Raises RequestError where nothing is possible
            now.
        """
        extra = [self._batch(transactional_id, recorded)]
        try:
            marker = self._marker(transactional_id, prepared)
            self._appender.end_transactions(own, marker, extra, reserved=bool(prepared.partitions))
        except RequestError as rejection:
            log.warning("%s: a marker is rejected: %s", printable(transactional_id), rejection.message)
            return False
        except BatchTooLarge:
            return False
        except StorageError as error:
            raise _request_error(error) from None
        return True

    async def _finish(
        self, transactional_id: str, prepared: TransactionMetadata, partitions: Sequence[TopicPartition]
    ) -> None:
        """Writes the committed decision's marker to these partitions, then records that it is over."""
        marker = self._marker(transactional_id, prepared)
        own, others = self._split_partitions(partitions)
        for first in range(0, len(own), MAX_PARTITIONS_PER_ENTRY):
            await self._end_own(transactional_id, own[first : first + MAX_PARTITIONS_PER_ENTRY], marker)
        if others:
            try:
                await self._markers.write(others, marker)
            except RequestError as rejection:
                log.warning("%s: a marker is rejected: %s", printable(transactional_id), rejection.message)
        over = complete(prepared, self.time_ms())
        batch = self._batch(transactional_id, over)
        await self._until_appended(lambda: self.group.append(*batch, reserved=True))
        await self._committed()

    async def _end_own(
        self, transactional_id: str, own: Sequence[PartitionLog], marker: TxnMarkerEntry
    ) -> None:
        try:
            await self._until_appended(lambda: self._appender.end_transactions(own, marker))
        except RequestError:
            for each in own:
                try:
                    await self._until_appended(partial(self._appender.end_transactions, [each], marker))
                except RequestError as rejection:  # it belongs to a newer producer already
                    log.warning(
                        "%s: a marker is rejected: %s", printable(transactional_id), rejection.message
                    )
        await self._committed()

    async def _until_appended(self, append: Callable[[], object]) -> None:
        """Append, as soon as there is room. Raises RequestError as `append` does, or where this does not
        lead."""
        while True:
            try:
                append()
                return
            except NotLeader as error:
                raise _request_error(error) from None
            except StorageError:
                await asyncio.sleep(RETRY_SECONDS)

    def _split_partitions(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[PartitionLog], list[TopicPartition]]:
        """Returns the partitions of this log group, and the others, unknown ones among them."""
        own: list[PartitionLog] = []
        others: list[TopicPartition] = []
        for name, index in partitions:
            found = self._cluster.partition(name, index)
            if found is not None and found.group is self.group and found.is_here:
                own.append(found.log)
            else:
                others.append((name, index))
        return own, others

    def _marker(self, transactional_id: str, prepared: TransactionMetadata) -> TxnMarkerEntry:
        return TxnMarkerEntry(
            prepared.producer_id,
            prepared.producer_epoch,
            self.group.leader_epoch(self._partition(transactional_id)),
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.version,
        )

    # --- writing --------------------------------------------------------------------------------------------

    async def _write(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        """Commit a record. Raises RequestError."""
        self._append(transactional_id, metadata)
        await self._committed()

    def _append(
        self, transactional_id: str, metadata: TransactionMetadata | None, *, reserved: bool = False
    ) -> None:
        try:
            self.group.append(*self._batch(transactional_id, metadata), reserved=reserved)
        except StorageError as error:
            raise _request_error(error) from None

    def _batch(
        self, transactional_id: str, metadata: TransactionMetadata | None
    ) -> tuple[PartitionLog, bytearray, BatchHeader]:
        batch, header = key_value_batch([record(transactional_id, metadata)], self.time_ms())
        return self._partition(transactional_id), batch, header

    def _partition(self, transactional_id: str) -> PartitionLog:
        partition = self._partition_of(transactional_id)
        if partition is None:
            raise self._not_here()
        return partition

    async def _committed(self) -> None:
        """Wait until what was appended is committed, and replayed. Raises RequestError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def settle(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(self._not_here())

        self.group.when_committed(settle)
        await future

    async def _new_producer_id(self) -> int:
        try:
            return await self._producer_ids.take()
        except StorageError as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None

    def _not_here(self) -> RequestError:
        return RequestError(ErrorCode.NOT_COORDINATOR, f"log group {self.group.group_id} is not led here")


def _complete(result: PendingResult, value: object) -> None:
    if not result.done():  # else no request waits any more
        result.set_result(value)


def _request_error(error: StorageError) -> RequestError:
    """Returns the error response for a failed append; like the groups' `kafka_error`."""
    if isinstance(error, NotLeader):
        return RequestError(ErrorCode.NOT_COORDINATOR, str(error))
    if isinstance(error, BatchTooLarge):
        return RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
