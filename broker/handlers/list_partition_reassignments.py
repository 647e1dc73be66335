"""ListPartitionReassignments: one broker moves nothing, so nothing is under way (KIP-455)."""

from __future__ import annotations

from broker.context import Answer, ClientContext
from protocol.api import ApiKey, RequestHeader
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(
    context: ClientContext, header: RequestHeader, request: ListPartitionReassignmentsRequest
) -> Answer:
    """None; topics that are not there are not an error, as in Kafka."""
    return ListPartitionReassignmentsResponse(error_message=None)
