"""Handlers: `produce`, `describe_producers`; `atomic_produce` is a Produce that appends all partitions or
none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.api.describe_producers import DescribeProducers
from lockstep.broker.produce.api.produce import Produce
from lockstep.broker.produce.append_result import AppendPaths
from lockstep.broker.produce.appender import Appender
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer


def build_handlers(
    cluster: MetadataCache,
    appenders: Mapping[int, Appender],
    endpoints: NodeEndpoints,
    time_slicer: TimeSlicer,
    transactional: Callable[[str], AppendPaths],
    staged: Callable[[str, str], AppendPaths],
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package; `Produce` describes the arguments."""
    return [
        Produce(cluster, appenders, endpoints, time_slicer, transactional, staged, authorizer),
        DescribeProducers(cluster, appenders, authorizer),
    ]
