"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that check their position (KIP-320)."""

from __future__ import annotations

from lockstep.broker.metadata.leader_epochs import end_of_epoch, epoch_error
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (2, 4)


def handle(
    context: ClientContext, header: RequestHeader, request: OffsetForLeaderEpochRequest
) -> HandlerResponse:
    """One result per partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(context, topic.topic, requested) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(context: ClientContext, name: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=requested.partition)
    partition = context.services.cluster.partition(name, requested.partition)
    if partition is None:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response
    response.error_code = epoch_error(partition, requested.current_leader_epoch)
    if not response.error_code:
        response.leader_epoch, response.end_offset = end_of_epoch(partition, requested.leader_epoch)
    return response
