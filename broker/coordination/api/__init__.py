"""Handler: `find_coordinator`, for groups and transactions."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.coordination.api.find_coordinator import FindCoordinator, Registry
from lockstep.broker.coordination.coordinator_registry import TopicCreator
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer


def build_handlers(
    groups: Registry,
    transactions: Registry,
    topic_creator: TopicCreator,
    endpoints: NodeEndpoints,
    time_slicer: TimeSlicer,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    return [FindCoordinator(groups, transactions, topic_creator, endpoints, time_slicer, authorizer)]
