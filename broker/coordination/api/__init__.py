"""Handler: `find_coordinator`, for groups and transactions."""

from __future__ import annotations

from lockstep.broker.coordination.api.find_coordinator import FindCoordinator, Registry
from lockstep.broker.coordination.coordinator_registry import TopicMaker
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer


def handlers(
    groups: Registry,
    transactions: Registry,
    topics: TopicMaker,
    endpoints: NodeEndpoints,
    time_slicer: TimeSlicer,
) -> list[RequestHandler]:
    """The handlers of this room."""
    return [FindCoordinator(groups, transactions, topics, endpoints, time_slicer)]
