"""ListOffsets: the ends of partitions, and the first record at or after a time.

A search by time finds one batch in the index and opens at most that one. A batch whose header promises a
later timestamp than its records have gets the batch itself as the response: never a record too late.
Source: Kafka's ReplicaManager.fetchOffset and UnifiedLog.fetchOffsetByTimestamp; KIP-734, KIP-405, KIP-1005.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.leader_epoch_check import epoch_at, epoch_error, log_read_failure, read_error
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    RequestHandler,
    await_response,
)
from lockstep.broker.requests.sliced_response import encode_large, respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.batch_filter import MAX_RECORDS
from lockstep.protocol.records.compression import DecompressedTooLarge
from lockstep.protocol.records.record import iter_records
from lockstep.storage.missing_records import offset_after_missing
from lockstep.storage.types import Buffer, OffsetOutOfRange, StorageError

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
OFFSET_NOT_AVAILABLE_MIN_VERSION: Final = 5
MIN_VERSIONS: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamps and the first version that knows each."""
READ_COMMITTED: Final = 1


_SearchRequest = tuple[Partition, ListOffsetsPartition, ListOffsetsPartitionResponse]


class _Lookup:
    """The state that the topics of one request share."""

    __slots__ = ("api_version", "committed", "searches", "seen")

    def __init__(self, api_version: int, committed: bool) -> None:
        self.api_version = api_version
        self.committed = committed
        """True for a reader of committed records."""
        self.seen: set[tuple[str, int]] = set()
        self.searches: list[_SearchRequest] = []
        """The partitions whose response takes a search by time."""


class ListOffsets(RequestHandler):
    """See the module."""

    api_key = ApiKey.LIST_OFFSETS
    versions = (1, 11)

    def __init__(
        self, cluster: MetadataCache, time_slicer: TimeSlicer, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._time_slicer = time_slicer

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ListOffsetsRequest
    ) -> HandlerResponse:
        """Respond at once, unless a search by time has to open batches, or there are many partitions."""
        lookup = _Lookup(header.api_version, request.isolation_level == READ_COMMITTED)

        def topic_response(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
            return self._topic_response(client, lookup, topic)

        return respond_in_slices(
            self._time_slicer, request.topics, topic_response, partial(self._respond, lookup)
        )

    def _topic_response(
        self, client: ClientContext, lookup: _Lookup, topic: ListOffsetsTopic
    ) -> ListOffsetsTopicResponse:
        """The response about one topic, but for the searches, which `lookup` gets."""
        response = ListOffsetsTopicResponse(name=topic.name)
        is_allowed = self._access.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name)
        for requested in topic.partitions:
            partition_response = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
            response.partitions.append(partition_response)
            if not is_allowed:
                partition_response.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if (topic.name, requested.partition_index) in lookup.seen:
                partition_response.error_code = ErrorCode.INVALID_REQUEST
                continue
            lookup.seen.add((topic.name, requested.partition_index))
            partition = self._cluster.partition(topic.name, requested.partition_index)
            if not _respond_without_search(
                partition, requested, partition_response, lookup.api_version, lookup.committed
            ):
                assert partition is not None
                lookup.searches.append((partition, requested, partition_response))
        return response

    def _respond(self, lookup: _Lookup, topics: list[ListOffsetsTopicResponse]) -> HandlerResponse:
        response = ListOffsetsResponse(topics=topics)
        if lookup.searches:
            return self._search_all(lookup, response)
        return encode_large(response, lookup.api_version, len(lookup.seen))

    async def _search_all(self, lookup: _Lookup, response: ListOffsetsResponse) -> object | None:
        api_version, committed = lookup.api_version, lookup.committed
        max_bytes = self._cluster.settings.lockstep_lookup_max_bytes
        for partition, requested, partition_response in lookup.searches:
            try:
                found = await _search(partition, requested.timestamp, max_bytes, committed)
            except (OSError, StorageError) as error:
                log_read_failure(partition, f"no search by time: {error}")
                partition_response.error_code = read_error(error)
                continue
            if found is not None:
                partition_response.offset, partition_response.timestamp = found
                _set_leader_epoch(
                    partition_response, api_version, epoch_at(partition, partition_response.offset)
                )
        return await await_response(encode_large(response, api_version, len(lookup.seen)))


def _respond_without_search(
    partition: Partition | None,
    requested: ListOffsetsPartition,
    response: ListOffsetsPartitionResponse,
    api_version: int,
    committed: bool,
) -> bool:
    """Fill in the response without a search; False where one is needed."""
    if requested.timestamp < 0 and api_version < MIN_VERSIONS.get(requested.timestamp, 1 << 15):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return True
    if partition is None:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return True
    response.error_code = epoch_error(partition, requested.current_leader_epoch)
    if response.error_code or requested.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return True  # without tiered storage nothing was ever uploaded, and nothing will be
    if not partition.group.has_lease:  # another node may have committed more by now
        knows_error = api_version >= OFFSET_NOT_AVAILABLE_MIN_VERSION
        response.error_code = (
            ErrorCode.OFFSET_NOT_AVAILABLE if knows_error else ErrorCode.LEADER_NOT_AVAILABLE
        )
        return True
    if requested.timestamp == LATEST:
        response.offset = _end(partition, committed)
        _set_leader_epoch(response, api_version, partition.leader_epoch)
        return True
    if requested.timestamp in (EARLIEST, EARLIEST_LOCAL):
        response.offset = partition.log.log_start_offset
        _set_leader_epoch(response, api_version, epoch_at(partition, response.offset))
        return True
    return False


def _set_leader_epoch(response: ListOffsetsPartitionResponse, api_version: int, leader_epoch: int) -> None:
    if api_version >= 4:
        response.leader_epoch = leader_epoch


def _end(partition: Partition, committed: bool) -> int:
    """The end offset for a client with this isolation level."""
    return partition.last_stable_offset if committed else partition.log.high_watermark


async def _search(
    partition: Partition, timestamp: int, max_bytes: int, committed: bool, min_offset: int = 0
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or after a time, or of the newest one, from an offset on.

    As in Kafka, a record above the last stable offset is no result for read_committed, also the newest one,
    though there are older ones.
    """
    data_log = partition.group.log
    log = partition.log
    log_start, end, readable = log.log_start_offset, log.high_watermark, _end(partition, committed)
    start = max(min_offset, log_start)
    if timestamp == MAX_TIMESTAMP:
        found = await asyncio.to_thread(data_log.max_timestamp_batch, log.local_id, start, end)
    else:
        found = await asyncio.to_thread(data_log.timestamp_lookup, log.local_id, timestamp, start, end)
    if data_log.damage.missing:
        offset_after_missing(data_log, log, start)  # the result may be among what is missing
    if found is None or found.base_offset >= readable:
        return None
    offset = max(found.base_offset, start)
    try:
        result = partition.group.read(log, offset, 1)
        if result.cold or not result.buffers:
            result = await partition.group.read_cold(log, offset, 1)
    except OffsetOutOfRange:  # deleted while we looked: search what is left
        has_moved = log.log_start_offset > log_start
        return await _search(partition, timestamp, max_bytes, committed) if has_moved else None
    if not result.buffers:
        return None  # the topic was
    batch = result.buffers[0]
    target = found.max_timestamp if timestamp == MAX_TIMESTAMP else timestamp
    first = await asyncio.to_thread(first_record_at, batch, target, offset, max_bytes)
    if first is not None:
        return first
    if timestamp == MAX_TIMESTAMP:
        return offset, target
    return await _search(partition, timestamp, max_bytes, committed, read_header(batch).last_offset + 1)


def first_record_at(
    batch: Buffer, timestamp: int, start_offset: int, max_bytes: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at or after both a time and an offset. None where that
    lies inside the batch and what is young enough before it.

    Records were never opened before; one that lies outside its batch's offsets or times is not believed, and
    where there are too many the batch is the response.
    Where all have the broker's time the first one is it, unless compaction took that.
    """
    header = read_header(batch)
    first, last, max_timestamp = (
        max(header.base_offset, start_offset),
        header.last_offset,
        header.max_timestamp,
    )
    if not header.is_log_append_time or header.record_count <= header.last_offset_delta:
        try:
            for record in islice(iter_records(batch, max_decompressed_bytes=max_bytes), MAX_RECORDS):
                if timestamp <= record.timestamp <= max_timestamp and first <= record.offset <= last:
                    return record.offset, record.timestamp
            if first > header.base_offset and header.record_count <= MAX_RECORDS:
                return None
        except (ValueError, DecompressedTooLarge):
            pass  # what the producer wrote cannot be read; the batch is the best result there is
    return first, max_timestamp
