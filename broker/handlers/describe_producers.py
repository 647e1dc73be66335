"""DescribeProducers: the idempotent producers a partition remembers (KIP-664).

The time told is that of the producer's last batch by the broker's clock, which its expiry counts from; Kafka
tells the newest timestamp in that batch. There are no transactions: no coordinator epoch, no open one.
"""

from __future__ import annotations

from typing import Final

from broker.context import Answer, ClientContext
from broker.topics import Refused, check_name
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

API_KEY = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)

NO_COORDINATOR: Final = -1


def handle(context: ClientContext, header: RequestHeader, request: DescribeProducersRequest) -> Answer:
    """One result per partition named, as often as it is named."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(context: ClientContext, name: str, index: int) -> PartitionResponse:
    services = context.services
    result = PartitionResponse(partition_index=index)
    partition = services.cluster.partition(name, index)
    if partition is None:
        error, result.error_message = _unknown(name)
        result.error_code = error
    elif not partition.group.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        result.error_message = ErrorCode.NOT_LEADER_OR_FOLLOWER.message
    elif (appender := services.appenders.get(partition.group.group_id)) is not None:
        result.active_producers = [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_time_ms,
                coordinator_epoch=NO_COORDINATOR,
            )
            for producer_id, producer in appender.producers.of(partition.log.number)
        ]
    return result


def _unknown(name: str) -> tuple[ErrorCode, str]:
    try:
        check_name(name)
    except Refused as refused:
        return refused.error, refused.message
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message
