"""ListPartitionReassignments: the partitions of log groups that clients sent to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.replica_change import ReplicaChange, replica_change_of
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class ListPartitionReassignments(RequestHandler):
    """See the module."""

    api_key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = (0, 0)
    needs = Needs.CONTROLLER

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ListPartitionReassignmentsRequest
    ) -> HandlerResponse:
        """The requested reassignments, or all; an unknown topic is no error, as in Kafka."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE):
            denied = cluster_denial(AclOperation.DESCRIBE)
            return ListPartitionReassignmentsResponse(error_code=denied.error, error_message=denied.message)
        cluster = self._cluster
        changes = {group_id: replica_change_of(cluster, group_id) for group_id in cluster.image.moving}
        response = ListPartitionReassignmentsResponse(error_message=None)
        if not changes:
            return response
        if request.topics is None:
            requested_topics = {topic.name: topic.partitions for topic in cluster.topics()}
        else:
            requested_topics = {}
            for requested in request.topics:
                partitions_by_index = {
                    index: cluster.partition(requested.name, index) for index in requested.partition_indexes
                }
                requested_topics[requested.name] = [
                    each for each in partitions_by_index.values() if each is not None
                ]
        response.topics = [
            OngoingTopicReassignment(name=name, partitions=under_way)
            for name, partitions in requested_topics.items()
            if (under_way := _reassigning_partitions(partitions, changes))
        ]
        return response


def _reassigning_partitions(
    partitions: Iterable[Partition], changes: dict[int, ReplicaChange]
) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            partition_index=each.index,
            replicas=change.replicas,
            adding_replicas=change.adding,
            removing_replicas=change.removing,
        )
        for each in partitions
        if (change := changes.get(each.group.group_id)) is not None
    ]
