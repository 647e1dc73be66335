"""OffsetForLeaderEpoch: where a leader epoch ended, for clients that check their position (KIP-320)."""

from __future__ import annotations

from broker.context import ClientContext, HandlerResponse
from broker.partition_checks import end_of_epoch, epoch_error
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
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
    """One answer per partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(context, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(context: ClientContext, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    partition = context.services.cluster.partition(name, wanted.partition)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error_code = epoch_error(partition, wanted.current_leader_epoch)
    if not answer.error_code:
        answer.leader_epoch, answer.end_offset = end_of_epoch(partition, wanted.leader_epoch)
    return answer
