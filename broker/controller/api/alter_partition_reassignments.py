"""AlterPartitionReassignments: partitions move by whole log groups, or stay (KIP-455, KIP-860).

The rule is `broker/controller/reassignment.py`.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.reassignment import Reassignment, ReassignmentRequest
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


class AlterPartitionReassignments(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    versions = (0, 1)
    needs = Needs.CONTROLLER

    def __init__(
        self, cluster: MetadataCache, nodes: NodeRegistry, topics: Topics, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._topics = topics

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """One result per named partition, as often as it is named; reassignments continue after the
        response."""
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
        )
        wishes = [
            [
                ReassignmentRequest(topic.name, each.partition_index, each.replicas)
                for each in topic.partitions
            ]
            for topic in request.topics
        ]
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            denied = cluster_denial(AclOperation.ALTER)
            response.error_code, response.error_message = denied.error, denied.message
            for each in (each for of_topic in wishes for each in of_topic):
                each.error = denied
            response.responses = _results(request, wishes)
            return response
        reassignment = Reassignment(
            self._cluster, self._nodes, self._topics, request.allow_replication_factor_change
        )
        try:
            await reassignment.make([each for of_topic in wishes for each in of_topic])
        except RequestError as rejection:
            response.error_code, response.error_message = rejection.error, rejection.message
            return response
        response.responses = _results(request, wishes)
        return response


def _results(
    request: AlterPartitionReassignmentsRequest, wishes: list[list[ReassignmentRequest]]
) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(name=topic.name, partitions=[_result(each) for each in of_topic])
        for topic, of_topic in zip(request.topics, wishes, strict=True)
    ]


def _result(wish: ReassignmentRequest) -> ReassignablePartitionResponse:
    rejection = wish.error
    return ReassignablePartitionResponse(
        partition_index=wish.index,
        error_code=ErrorCode.NONE if rejection is None else rejection.error,
        error_message=None if rejection is None else rejection.message,
    )
