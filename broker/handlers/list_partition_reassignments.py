"""ListPartitionReassignments: the partitions of log groups that clients sent to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from broker.cluster.reassigning import Way, way_of
from broker.context import ClientContext, HandlerResponse
from broker.metadata import TopicPartition
from protocol.api import ApiKey, RequestHeader
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(
    context: ClientContext, header: RequestHeader, request: ListPartitionReassignmentsRequest
) -> HandlerResponse:
    """Those asked for, or all; topics that are not there are not an error, as in Kafka."""
    cluster = context.services.cluster
    ways = {number: way_of(cluster, number) for number in cluster.image.moving}
    response = ListPartitionReassignmentsResponse(error_message=None)
    if not ways:
        return response
    if request.topics is None:
        asked = {topic.name: topic.partitions for topic in cluster.topics()}
    else:
        asked = {}
        for wanted in request.topics:
            found = {index: cluster.partition(wanted.name, index) for index in wanted.partition_indexes}
            asked[wanted.name] = [each for each in found.values() if each is not None]
    response.topics = [
        OngoingTopicReassignment(name=name, partitions=under_way)
        for name, partitions in asked.items()
        if (under_way := _under_way(partitions, ways))
    ]
    return response


def _under_way(
    partitions: Iterable[TopicPartition], ways: dict[int, Way]
) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            partition_index=each.index,
            replicas=way.replicas,
            adding_replicas=way.adding,
            removing_replicas=way.removing,
        )
        for each in partitions
        if (way := ways.get(each.group.group_id)) is not None
    ]
