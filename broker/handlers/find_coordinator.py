"""FindCoordinator: there are no groups or transactions yet, said the way Kafka says it.

COORDINATOR_NOT_AVAILABLE is what a Kafka answers until its coordinator's topic exists: clients wait and ask
again, and no client takes it for a broken connection. The log says who waits.
"""

from __future__ import annotations

from typing import Final

from broker import unserved
from broker.context import Answer, ClientContext
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)

BATCHED_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1


def handle(context: ClientContext, header: RequestHeader, request: FindCoordinatorRequest) -> Answer:
    """The same answer for each key."""
    if request.key_type in (GROUP, TRANSACTION):
        what = "consumer groups" if request.key_type == GROUP else "transactions"
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"This broker does not serve {what} yet."
        keys = [request.key] if header.api_version < BATCHED_SINCE else request.coordinator_keys
        kind = unserved.GROUP if request.key_type == GROUP else unserved.TRANSACTION
        for key in keys[:1]:
            context.services.unserved.asked(header.client_id, kind, key)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {request.key_type}."
    if header.api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
