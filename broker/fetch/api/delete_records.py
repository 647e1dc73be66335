"""DeleteRecords: partitions begin at a later offset from now on (KIP-107).

One commit per log group for all of a request's partitions; the response waits for it, so that its content
survives a crash. Segments without live records are freed then.
Source: Kafka's ReplicaManager.deleteRecordsOnLocalLog for the errors.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import Backlogged, NotLeader, StorageError

log = logging.getLogger("lockstep.delete_records")

HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1
MAX_LOGGED_CHARACTERS: Final = 200

LogStarts = list[tuple[Partition, int, DeleteRecordsPartitionResult]]
"""Partitions with their new log start offsets and their results."""


class DeleteRecords(RequestHandler):
    """See the module."""

    api_key = ApiKey.DELETE_RECORDS
    versions = (0, 2)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        """Advance the log starts; for a partition that is named twice, to the last offset given."""
        offsets_by_topic: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            for each in topic.partitions:
                offsets_by_topic.setdefault(topic.name, {})[each.partition_index] = each.offset
        response = DeleteRecordsResponse()
        log_starts: dict[LogGroup, LogStarts] = {}
        for name, offsets in offsets_by_topic.items():
            topic_result = DeleteRecordsTopicResult(name=name)
            response.topics.append(topic_result)
            is_allowed = self._access.allows(client, AclOperation.DELETE, AclResourceType.TOPIC, name)
            for index, offset in offsets.items():
                result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN)
                topic_result.partitions.append(result)
                if not is_allowed:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                partition = self._cluster.partition(name, index)
                result.error_code, start = _validate(partition, offset)
                if partition is not None and result.error_code == ErrorCode.NONE:
                    log_starts.setdefault(partition.group, []).append((partition, start, result))
        await asyncio.gather(*(_advance_log_starts(group, each) for group, each in log_starts.items()))
        return response


def _validate(partition: Partition | None, offset: int) -> tuple[ErrorCode, int]:
    """The error of the offset, and the new log start, with the high watermark resolved."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN
    if partition.topic.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN
    if not partition.group.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, UNKNOWN
    if partition.topic.config.is_only_compacted:
        return ErrorCode.POLICY_VIOLATION, UNKNOWN
    high_watermark = partition.log.high_watermark
    start = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, UNKNOWN
    return ErrorCode.NONE, start


async def _advance_log_starts(group: LogGroup, log_starts: LogStarts) -> None:
    """Commit the new log starts of one group's partitions, and fill in their results."""
    starts = {
        partition.log.local_id: start
        for partition, start, _ in log_starts
        if start > partition.log.log_start_offset and partition.log.local_id in group.partitions
    }
    error = ErrorCode.NONE
    if starts:
        try:
            await group.advance_log_starts(starts)
        except StorageError as failure:
            log.warning("log group %d: no records were deleted: %s", group.group_id, failure)
            error = _error_code(failure)
        else:
            topics = ", ".join(sorted({partition.topic.name for partition, _, _ in log_starts}))[
                :MAX_LOGGED_CHARACTERS
            ]
            log.info(
                "log group %d: records deleted in %d partitions of %s", group.group_id, len(starts), topics
            )
            group.free_deleted_segments()
    for partition, start, result in log_starts:
        if start <= partition.log.log_start_offset:
            result.low_watermark = partition.log.log_start_offset
        else:
            result.error_code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted meanwhile


def _error_code(failure: StorageError) -> ErrorCode:
    if isinstance(failure, NotLeader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(failure, Backlogged) else ErrorCode.KAFKA_STORAGE_ERROR
