"""Fetch: batches of partitions from given offsets, at once or with min_bytes (KIP-74, KIP-227).

Work is per partition and per batch; records are never opened, and batches go to the socket by reference. A
follower's copy is served like the leader's, up to its own high watermark (KIP-392,
`broker/fetch/follower_fetch.py`). Invariants: nothing above the high watermark is served, and to readers of
committed records nothing above the last stable offset, with what was aborted below it
(`broker/fetch/aborted_transactions.py`); the first batch found is returned whatever its size, later ones
within the limits; a waiting request costs one entry per partition and no task, and an unknown partition does
not end the wait for others. Bytes that must come from the disk are read on a reader thread. Source: Kafka's
ReplicaManager.fetchMessages and Partition.readRecords for which error answers what.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lockstep.broker.fetch.aborted_transactions import aborted_transactions, offset_after
from lockstep.broker.fetch.fetch_purgatory import DelayedFetch
from lockstep.broker.fetch.fetch_session import (
    TOPIC_IDS_MIN_VERSION,
    FetchContext,
    FetchItem,
    FetchSessionError,
)
from lockstep.broker.fetch.follower_fetch import follower_error, is_whole, offset_error
from lockstep.broker.fetch.replica_selector import NearbyReplicas
from lockstep.broker.metadata.leader_epochs import (
    end_of_epoch,
    epoch_error,
    last_leader,
    log_read_failure,
    read_error,
)
from lockstep.broker.metadata.metadata_cache import TopicPartition
from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, PendingResponse
from lockstep.broker.settings.kafka_names import RACK_AWARE_SELECTOR
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from lockstep.protocol.records.batch import empty_batch
from lockstep.storage.types import DamagedBatch, OffsetOutOfRange, ReadResult, StorageError

API_KEY = ApiKey.FETCH
VERSIONS = (4, 18)

READ_COMMITTED: Final = 1
STORAGE_ERRORS_MIN_VERSION: Final = 6
FOLLOWER_READ_MIN_VERSION: Final = 11
REPLICA_STATE_MIN_VERSION: Final = 15
CURRENT_LEADER_MIN_VERSION: Final = 16
NO_RECORDS: Final = b""
MIN_REPAIR_WAIT_SECONDS: Final = 3.0
"""A fetch with a shorter max wait waits this long for read repair: a segment of 64 MiB comes from another
node in about a second, and late records are better than CORRUPT_MESSAGE."""
MAX_UNKNOWN: Final = 100
"""LIMIT. Unknown partitions of a waiting request. With more of them, or one with an impossible topic name,
the request is answered at once; Kafka lets it wait."""
_LEADERSHIP_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(context: ClientContext, header: RequestHeader, request: FetchRequest) -> HandlerResponse:
    """Respond at once if there is enough, an error or no time to wait; else when one of these comes true."""
    try:
        fetch_context = context.services.fetch_sessions.begin(request, header.api_version)
    except FetchSessionError as error:
        return FetchResponse(error_code=error.error)
    return _Fetch(context, header.api_version, request, fetch_context).start()


class _LongPoll(PendingResponse):
    """A response that may take as long as the client's max wait; of its request only the items are kept."""

    __slots__ = ()
    holds_request = False


class _Fetch:
    """One Fetch request under way."""

    __slots__ = (
        "_api_version",
        "_context",
        "_counted_bytes",
        "_counted_offsets",
        "_delayed_fetch",
        "_fetch_context",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_nearby_replicas",
        "_pending",
        "_read_committed",
        "_replica_id",
    )

    def __init__(
        self, context: ClientContext, api_version: int, request: FetchRequest, fetch_context: FetchContext
    ) -> None:
        self._context = context
        self._api_version = api_version
        self._fetch_context = fetch_context
        self._max_wait_ms = request.max_wait_ms
        self._max_bytes = max(0, min(request.max_bytes, context.services.settings.fetch_max_bytes))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._replica_id = request.replica_id
        if api_version >= REPLICA_STATE_MIN_VERSION:
            self._replica_id = request.replica_state.replica_id
        self._nearby_replicas: NearbyReplicas | None = None
        if request.rack_id and context.services.settings.replica_selector_class == RACK_AWARE_SELECTOR:
            self._nearby_replicas = NearbyReplicas(context, request.rack_id)
        self._pending = _LongPoll()
        self._delayed_fetch: DelayedFetch | None = None
        self._counted_offsets: list[int] = []
        self._counted_bytes = 0

    def start(self) -> HandlerResponse:
        partition_data: list[tuple[FetchItem, PartitionData]] = []
        total, is_urgent, cold = self._read(partition_data)
        if cold:
            return self._read_cold()
        if total >= self._min_bytes or is_urgent or self._max_wait_ms <= 0:
            return self._response(partition_data)
        partitions = self._deduplicate_items()
        self._counted_offsets = [item.fetch_offset for item in self._fetch_context.items]
        if total and self._remaining_bytes(0) <= self._min_bytes and self._has_enough():
            return self._response(partition_data)  # there is more, but no room for it
        fetch_purgatory = self._context.services.fetch_purgatory
        self._delayed_fetch = fetch_purgatory.wait(self._attempt, partitions, self._max_wait_ms)
        self._pending.on_disconnect = self._cancel
        return self._pending

    def _deduplicate_items(self) -> list[TopicPartition]:
        """The known partitions. A partition that is named more than once keeps only its last item, so a
        waiting request has at most one item for each partition, and its size need not count. Unknown ones
        come last."""
        items = self._fetch_context.items
        known_items = {item.partition: item for item in items if item.partition is not None}
        if len(known_items) < len(items):
            unknown_items = {(item.topic, item.index): item for item in items if item.partition is None}
            self._fetch_context.items = [*known_items.values(), *unknown_items.values()]
        return list(known_items)

    def _cancel(self) -> None:
        if self._delayed_fetch is not None:
            self._context.services.fetch_purgatory.cancel(self._delayed_fetch)

    # --- reading ------------------------------------------------------------------------------------------

    def _read(self, partition_data: list[tuple[FetchItem, PartitionData]]) -> tuple[int, bool, bool]:
        """Read every partition into `partition_data`: (bytes, respond at once, bytes are on the disk).

        A partition without news for the session's client is left out. Unknown partitions end the wait only if
        all are unknown, as in Kafka, or if there are too many.
        """
        budget = self._remaining_bytes(0)
        total = unknown_count = 0
        is_urgent = False
        is_incremental, items = self._fetch_context.is_incremental, self._fetch_context.items
        for item in items:
            data = self._check_item(item)
            partition = item.partition
            if partition is None or _has_other_content(item, data):
                if partition is None:
                    unknown_count += 1
                    is_urgent = (
                        is_urgent or unknown_count > MAX_UNKNOWN or len(item.topic) > MAX_NAME_CHARACTERS
                    )
                elif data.error_code != ErrorCode.OFFSET_NOT_AVAILABLE:
                    # An offset that this follower has not replicated yet may come while the request waits.
                    is_urgent = True
                partition_data.append((item, data))
                continue
            end = self._end_offset(data)
            if item.fetch_offset < end and (budget > 0 or total == 0):
                result = self._read_records(partition, item, min(item.max_bytes, budget), end, total == 0)
                if result is None:
                    return total, is_urgent, True
                if result.total_bytes:
                    self._set_records(data, item, result)
                    total += result.total_bytes
                    budget -= result.total_bytes
            if not is_incremental or item.has_changed(data):
                partition_data.append((item, data))
        return total, is_urgent or unknown_count == len(items), False

    def _remaining_bytes(self, used_bytes: int) -> int:
        """The bytes that this response may still add after `used_bytes` bytes: fewer while other responses
        are unsent.

        A connection's write buffer is always allowed, so that readers keep a good pace.
        """
        services = self._context.services
        settings = services.settings
        available = settings.lockstep_unsent_max_bytes - services.unsent_bytes.total
        minimum = settings.lockstep_connection_write_buffer_bytes - used_bytes
        return min(self._max_bytes - used_bytes, max(available, minimum))

    def _end_offset(self, data: PartitionData) -> int:
        """The end offset for this client."""
        return data.last_stable_offset if self._read_committed else data.high_watermark

    def _set_records(self, data: PartitionData, item: FetchItem, result: ReadResult) -> None:
        data.records = list(result.buffers)
        if self._read_committed and item.partition is not None:
            data.aborted_transactions = aborted_transactions(
                item.partition.log, item.fetch_offset, result.buffers
            )

    @staticmethod
    def _read_records(
        partition: TopicPartition, item: FetchItem, max_bytes: int, end: int, min_one: bool
    ) -> ReadResult | None:
        """Batches from memory or page cache; None where they must come from the disk."""
        try:
            result = partition.group.read(partition.log, item.fetch_offset, max(0, max_bytes), end)
        except (OSError, StorageError):
            return None  # the reader thread meets it, too, and says so
        if result.cold:
            return None
        result = _with_empty_batch(result, item.fetch_offset, end)
        if result.total_bytes > max_bytes and not min_one:
            return _EMPTY
        return result

    async def _read_cold(self) -> FetchResponse:
        """Build the whole response again, with reads from the disk.

        Its bytes, and those it may get, count as unsent meanwhile, as many such reads may run concurrently.
        """
        partition_data: list[tuple[FetchItem, PartitionData]] = []
        services = self._context.services
        total = counted_bytes = 0
        repair_wait_s = max(MIN_REPAIR_WAIT_SECONDS, self._max_wait_ms / 1000)
        repair_deadline = asyncio.get_running_loop().time() + repair_wait_s
        try:
            for item in self._fetch_context.items:
                data = self._check_item(item)
                partition = item.partition
                end = self._end_offset(data)
                budget = self._remaining_bytes(total)
                if (
                    partition is not None
                    and not _has_other_content(item, data)
                    and item.fetch_offset < end
                    and (budget > 0 or total == 0)
                ):
                    max_bytes = max(0, min(item.max_bytes, budget))
                    result = self._read_records(partition, item, max_bytes, end, total == 0)
                    if result is None:
                        services.unsent_bytes.total += max_bytes
                        counted_bytes += max_bytes
                        result, error = await _read_from_disk(
                            partition, item.fetch_offset, max_bytes, end, repair_deadline
                        )
                        if error is not ErrorCode.NONE:
                            data = self._error_data(item, error)
                    if result.total_bytes and (total == 0 or result.total_bytes <= max_bytes):
                        self._set_records(data, item, result)
                        total += result.total_bytes
                    services.unsent_bytes.total += total - counted_bytes
                    counted_bytes = total
                if not self._fetch_context.is_incremental or item.has_changed(data):
                    partition_data.append((item, data))
        finally:
            services.unsent_bytes.total -= counted_bytes
        return self._response(partition_data)

    def _check_item(self, item: FetchItem) -> PartitionData:
        """Find the partition and check the request against it; the records are still missing."""
        item.is_diverging = False
        partition = item.partition
        if partition is None or partition.topic.deleted:
            partition = item.partition = self._find_partition(item)
        if partition is None:
            data = self._error_data(item, self._unknown_error(item))
            data.aborted_transactions = []
            return data
        error = self._item_error(partition, item)
        if error is not ErrorCode.NONE:
            return self._error_data(item, error)
        log = partition.log
        offset = item.fetch_offset
        high_watermark = log.high_watermark
        data = PartitionData(
            partition_index=item.index,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=NO_RECORDS,
        )
        if self._nearby_replicas is not None and not item.is_follower_read:
            data.preferred_read_replica = self._nearby_replicas.select(partition, offset)
            if data.preferred_read_replica >= 0:
                return data  # as in Kafka, nothing more is looked at here
        if item.last_fetched_epoch >= 0:
            epoch, end_offset = end_of_epoch(partition, item.last_fetched_epoch)
            if epoch < 0:
                return self._error_data(item, ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < item.last_fetched_epoch or end_offset < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                item.is_diverging = True
        return data

    def _item_error(self, partition: TopicPartition, item: FetchItem) -> ErrorCode:
        """NONE, or the error for which nothing is read for this item."""
        is_follower_read = item.is_follower_read = not partition.group.is_leader
        check = (
            follower_error
            if is_follower_read and self._api_version >= FOLLOWER_READ_MIN_VERSION
            else epoch_error
        )
        error = check(partition, item.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        if self._replica_id >= 0:
            # Only this cluster's own replicas may say which replica they are; this cluster has none.
            known_epoch = item.current_leader_epoch >= 0
            return ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_follower_read:
            return offset_error(partition, item.fetch_offset)
        if not partition.log.log_start_offset <= item.fetch_offset <= partition.log.next_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _find_partition(self, item: FetchItem) -> TopicPartition | None:
        cluster = self._context.services.cluster
        topic_key = item.topic
        topic = cluster.topic_by_id(topic_key) if isinstance(topic_key, bytes) else cluster.topic(topic_key)
        if topic is None or not 0 <= item.index < len(topic.partitions):
            return None
        return topic.partitions[item.index]

    def _unknown_error(self, item: FetchItem) -> ErrorCode:
        topic_key = item.topic
        if isinstance(topic_key, bytes) and self._context.services.cluster.topic_by_id(topic_key) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _error_data(self, item: FetchItem, error: ErrorCode) -> PartitionData:
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._api_version < STORAGE_ERRORS_MIN_VERSION:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients that may not know the other ask again
        data = PartitionData(
            partition_index=item.index,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=None,
            records=NO_RECORDS,
        )
        if (
            error in _LEADERSHIP_ERRORS
            and self._api_version >= CURRENT_LEADER_MIN_VERSION
            and item.partition is not None
        ):
            leader_id, leader_epoch = last_leader(item.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return data

    # --- waiting ------------------------------------------------------------------------------------------

    def _attempt(self, expired: bool) -> bool:
        """Respond if there is enough now, or no more time."""
        try:
            if not expired and not self._has_enough():
                return False
            partition_data: list[tuple[FetchItem, PartitionData]] = []
            if self._read(partition_data)[2]:
                task = asyncio.ensure_future(self._read_cold())
                task.add_done_callback(self._pending.complete_from)
            else:
                self._pending.complete(self._response(partition_data))
        except Exception as error:
            self._pending.fail(error)
        return True

    def _has_enough(self) -> bool:
        """True if min_bytes can be read, or as much as the limits allow. Each batch is counted once."""
        counted_offsets = self._counted_offsets
        minimum = min(self._min_bytes, self._remaining_bytes(0))
        for index, item in enumerate(self._fetch_context.items):
            partition = item.partition
            if partition is None:
                break  # nobody knows this one and those behind it
            if partition.topic.deleted or _has_changed_role(partition, item):
                return True
            log = partition.log
            end = log.last_stable_offset if self._read_committed else log.high_watermark
            if end <= counted_offsets[index]:
                continue
            missing = minimum - self._counted_bytes
            if missing <= 1:
                return True
            try:
                result = partition.group.read(log, counted_offsets[index], missing, end)
            except (OSError, StorageError):  # deleted while we waited, or unreadable: time to say so
                return True
            if result.cold:
                return True
            counted_offsets[index] = end
            self._counted_bytes += result.total_bytes
            if result.total_bytes >= missing or (result.buffers and offset_after(result.buffers[-1]) < end):
                return True  # the next batch is more than was missing
        return False

    # --- answering ----------------------------------------------------------------------------------------

    def _response(self, partition_data: list[tuple[FetchItem, PartitionData]]) -> FetchResponse:
        session = self._fetch_context.session
        by_id = self._api_version >= TOPIC_IDS_MIN_VERSION
        topics: list[FetchableTopicResponse] = []
        topic_key: str | bytes | None = None
        leader_ids: set[int] = set()
        for item, data in partition_data:
            if item.topic != topic_key:
                topic_key = item.topic
                topics.append(
                    FetchableTopicResponse(topic_id=topic_key)  # type: ignore[arg-type]
                    if by_id
                    else FetchableTopicResponse(topic=topic_key)  # type: ignore[arg-type]
                )
            topics[-1].partitions.append(data)
            if data.error_code in _LEADERSHIP_ERRORS:
                leader_ids.add(data.current_leader.leader_id)
            if session is not None:
                item.update_cached(data)
                if data.records:
                    session.move_to_end(item)
        response = FetchResponse(session_id=self._fetch_context.session_id, responses=topics)
        if leader_ids and self._api_version >= CURRENT_LEADER_MIN_VERSION:
            response.node_endpoints = [
                NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in map(self._context.endpoint_of, sorted(leader_ids))
                if each is not None
            ]
        return response


_EMPTY: Final = ReadResult([], 0)


def _has_other_content(item: FetchItem, data: PartitionData) -> bool:
    """True if `data` has an error or a redirect, so that no records are read."""
    return bool(data.error_code or item.is_diverging or data.preferred_read_replica >= 0)


def _has_changed_role(partition: TopicPartition, item: FetchItem) -> bool:
    """True if this node's role in the partition has changed since the last check."""
    return partition.group.is_leader is item.is_follower_read or not partition.is_here


def _with_empty_batch(result: ReadResult, offset: int, end: int) -> ReadResult:
    """The result, or an empty batch in its place where no batch is left from the offset to the end: a client
    that reads to the end would otherwise wait there until something newer is written."""
    if result.buffers or result.cold or not offset < end <= result.next_offset:
        return result
    records = empty_batch(offset, end)
    return ReadResult([records], len(records), next_offset=end)


async def _read_from_disk(
    partition: TopicPartition, offset: int, max_bytes: int, end: int, repair_deadline: float
) -> tuple[ReadResult, ErrorCode]:
    """Batches read on a reader thread; or nothing, and an error."""
    group = partition.group
    try:
        result = await _read_with_repair(partition, offset, max_bytes, end, repair_deadline)
        if not is_whole(group):  # not any more
            return _EMPTY, ErrorCode.NOT_LEADER_OR_FOLLOWER
        high_watermark = partition.log.high_watermark
        # Below a transaction that is open all may have been cleaned away, or all given up that was damaged.
        is_end = offset >= high_watermark or result.next_offset >= end
        if result.buffers or is_end or (end < high_watermark and not result.cold):
            return _with_empty_batch(result, offset, end), ErrorCode.NONE
        problem, error = "the log's file ends before its records", ErrorCode.CORRUPT_MESSAGE
    except OffsetOutOfRange:  # deleted while we waited for the disk
        return _EMPTY, ErrorCode.OFFSET_OUT_OF_RANGE
    except (OSError, StorageError) as failure:
        problem, error = str(failure), read_error(failure)
    if partition.topic.deleted or offset < partition.log.log_start_offset:
        return _EMPTY, ErrorCode.OFFSET_OUT_OF_RANGE
    log_read_failure(partition, f"offset {offset} cannot be read: {problem}")
    return _EMPTY, error


async def _read_with_repair(
    partition: TopicPartition, offset: int, max_bytes: int, end: int, repair_deadline: float
) -> ReadResult:
    """`read_cold`; after damage, once more if read repair succeeds before `repair_deadline` (loop time)."""
    group = partition.group
    try:
        return await group.read_cold(partition.log, offset, max_bytes, end)
    except DamagedBatch as damaged:
        left_s = repair_deadline - asyncio.get_running_loop().time()
        if not await group.read_repair.repair(damaged.sequence, left_s):
            raise
    return await group.read_cold(partition.log, offset, max_bytes, end)
