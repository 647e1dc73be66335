"""DescribeTopicPartitions: topics by name, a page of partitions at a time (KIP-966).

The lists of eligible leaders are never null: Kafka's tools and Java's admin client read them without looking.
Source: Kafka's DescribeTopicPartitionsRequestHandler and KRaftMetadataCache.describeTopicResponse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeStates
from lockstep.broker.metadata.replica_state import ReplicaStates
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.requests.authorized_operations import NOT_REQUESTED
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MAX_PARTITIONS: Final = 2000
"""Kafka's default of max.request.partition.size.limit."""


class DescribeTopicPartitions(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    versions = (0, 0)

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeStates,
        endpoints: NodeEndpoints,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeTopicPartitionsRequest
    ) -> HandlerResponse:
        """One page, from the cursor on."""
        names, cursor = {topic.name for topic in request.topics}, request.cursor
        if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
            return DescribeTopicPartitionsResponse(
                topics=[
                    DescribeTopicPartitionsResponseTopic(
                        error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                    )
                    for topic in request.topics
                ]
            )
        lists_all = not names
        if lists_all:
            names = {topic.name for topic in self._cluster.topics()}
        denied = self._denied_names(client, names, is_requested=not lists_all)
        names -= denied
        begin = cursor.topic_name if cursor is not None else ""
        response = DescribeTopicPartitionsResponse()
        remaining = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
        for name in sorted(name for name in names if name >= begin):
            if remaining == 0:
                response.next_cursor = Cursor(topic_name=name)
                break
            first = cursor.partition_index if cursor is not None and name == begin else 0
            topic = self._cluster.topic(name)
            if topic is None:
                response.topics.append(_unknown_topic(name, self._operations(client, name)))
                continue
            end = min(len(topic.partitions), first + remaining)
            response.topics.append(self._page(client, topic, first, end))
            remaining -= max(0, end - first)
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
        if not lists_all:
            response.topics += [_denied_topic(name) for name in sorted(denied)]
        return response

    def _denied_names(self, client: ClientContext, names: Iterable[str], *, is_requested: bool) -> set[str]:
        """The topics that the client may not describe."""
        operation, topic = AclOperation.DESCRIBE, AclResourceType.TOPIC
        return {
            name
            for name in names
            if not self._access.allows(client, operation, topic, name, is_requested=is_requested)
        }

    def _operations(self, client: ClientContext, name: str) -> int:
        return self._access.authorized_operations(client, AclResourceType.TOPIC, name)

    def _page(
        self, client: ClientContext, topic: Topic, first: int, end: int
    ) -> DescribeTopicPartitionsResponseTopic:
        replicas = ReplicaStates(self._cluster, self._nodes, self._endpoints, client)
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                DescribeTopicPartitionsResponsePartition(
                    partition_index=partition.index,
                    leader_id=state.leader_id,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=state.nodes,
                    isr_nodes=state.in_sync,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=state.offline,
                )
                for partition in topic.partitions[first:end]
                for state in [replicas.of(partition)]
            ],
            topic_authorized_operations=self._operations(client, topic.name),
        )


def _unknown_topic(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except RequestError as rejection:
        error = rejection.error
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=operations
    )


def _denied_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    """A topic that the client may not describe: whether it exists is not to be seen."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_authorized_operations=NOT_REQUESTED
    )
