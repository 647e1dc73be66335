"""DescribeProducers: the active producers of partitions and their open transactions (KIP-664).

The reported time is that of the producer's last batch by the broker's clock, from which its expiration
counts; Kafka reports the newest timestamp in that batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.produce.appender import Appender
from lockstep.broker.requests.duplicate_names import DuplicateNames
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

MAX_REPEATED_PRODUCERS: Final = 1_000
"""LIMIT. Partitions that a request names again, and their reported producers: each costs the client four
bytes."""

NOT_AUTHORIZED: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.message,
)


class DescribeProducers(RequestHandler):
    """See the module. Args: appenders: by data group."""

    api_key = ApiKey.DESCRIBE_PRODUCERS
    versions = (0, 0)

    def __init__(
        self, cluster: MetadataCache, appenders: Mapping[int, Appender], authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._appenders = appenders

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """One result per partition named, as often as it is named, within reason."""
        duplicate_names = DuplicateNames(MAX_REPEATED_PRODUCERS)
        results_by_partition: dict[tuple[str, int], PartitionResponse] = {}
        topics = []
        for topic in request.topics:
            # One error for all its partitions: as many words for each of 100,000 partitions take memory.
            is_allowed = self._access.allows(client, AclOperation.READ, AclResourceType.TOPIC, topic.name)
            error = _unknown(topic.name) if is_allowed else NOT_AUTHORIZED
            results = []
            for index in topic.partition_indexes:
                topic_partition = topic.name, index
                result = results_by_partition.get(topic_partition)
                if result is None:
                    result = results_by_partition[topic_partition] = self._describe(
                        *topic_partition, error, is_allowed
                    )
                if duplicate_names.is_allowed(topic_partition, 1 + len(result.active_producers)):
                    results.append(result)
            topics.append(TopicResponse(name=topic.name, partitions=results))
        return DescribeProducersResponse(topics=topics)

    def _describe(
        self, name: str, index: int, error: tuple[ErrorCode, str], is_allowed: bool
    ) -> PartitionResponse:
        """The result; with this error for an unknown partition, and for any where that is not allowed."""
        result = PartitionResponse(partition_index=index)
        partition = self._cluster.partition(name, index) if is_allowed else None
        if partition is None:
            result.error_code, result.error_message = error
        elif not partition.group.is_leader:
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            result.error_message = ErrorCode.NOT_LEADER_OR_FOLLOWER.message
        elif (appender := self._appenders.get(partition.group.group_id)) is not None:
            result.active_producers = [
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_time_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.open_at,
                )
                for producer_id, producer in appender.producers.of(partition.log.local_id)
            ]
        return result


def _unknown(name: str) -> tuple[ErrorCode, str]:
    try:
        check_name(name)
    except RequestError as rejection:
        return rejection.error, rejection.message
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message
