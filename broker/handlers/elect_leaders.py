"""ElectLeaders: every partition has one replica, and that one leads (KIP-183, KIP-460).

Source: Kafka's ReplicationControlManager.electLeaders: asked for all, it names only partitions that changed.
"""

from __future__ import annotations

from typing import Final

from broker.context import Answer, ClientContext
from broker.topic_rules import MAX_NAME_CHARACTERS
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API_KEY = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)

KINDS: Final = (0, 1)
"""The preferred replica, or any that is left."""


def handle(context: ClientContext, header: RequestHeader, request: ElectLeadersRequest) -> Answer:
    """One result per partition named, as often as it is named."""
    cluster = context.services.cluster
    known = request.election_type in KINDS or request.topic_partitions == []
    if request.topic_partitions is None:
        every = [ReplicaElectionResult(topic=topic.name) for topic in cluster.topics()] if known else []
        error = ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST
        return ElectLeadersResponse(error_code=error, replica_election_results=every)
    response = ElectLeadersResponse(error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST)
    for topic in request.topic_partitions:
        told = ReplicaElectionResult(topic=topic.topic)
        response.replica_election_results.append(told)
        unknown = f"No such topic as {topic.topic[:MAX_NAME_CHARACTERS]}"  # one text for all its partitions
        for index in topic.partitions:
            if known:
                error, message = _result(context, topic.topic, index, unknown)
            else:
                error, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            told.partition_result.append(
                PartitionResult(partition_id=index, error_code=error, error_message=message)
            )
    return response


def _result(context: ClientContext, name: str, index: int, unknown: str) -> tuple[ErrorCode, str]:
    cluster = context.services.cluster
    if cluster.topic(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown
    if cluster.partition(name, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
