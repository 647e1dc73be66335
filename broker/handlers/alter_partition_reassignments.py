"""AlterPartitionReassignments: a partition may only be sent to where it is (KIP-455, KIP-860).

Source: Kafka's ReplicationControlManager.alterPartitionReassignments for which error answers what.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import Answer, ClientContext
from broker.refused import Refused
from broker.replica_assignment import check_replicas
from broker.topic_rules import MAX_NAME_CHARACTERS
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)


def handle(
    context: ClientContext, header: RequestHeader, request: AlterPartitionReassignmentsRequest
) -> Answer:
    """One result per partition named: it is there already, or it cannot go there."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(context, topic.name, each.partition_index, each.replicas)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _result(
    context: ClientContext, name: str, index: int, replicas: Sequence[int] | None
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=index, error_message=None)
    try:
        _check(context, name, index, replicas)
    except Refused as refused:
        result.error_code, result.error_message = refused.error, refused.message
    return result


def _check(context: ClientContext, name: str, index: int, replicas: Sequence[int] | None) -> None:
    """Raises Refused unless the partition is just there already."""
    cluster = context.services.cluster
    if cluster.topic(name) is None:
        shown = name[:MAX_NAME_CHARACTERS]  # it is said for each partition
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {shown}.")
    if cluster.partition(name, index) is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        raise Refused(error, error.message)
    check_replicas(replicas, [context.services.settings.node_id])
