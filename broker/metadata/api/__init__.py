"""Handlers: `api_versions`, `metadata`, `describe_cluster`, `describe_topic_partitions`,
`describe_log_dirs`."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.api.describe_cluster import DescribeCluster
from lockstep.broker.metadata.api.describe_log_dirs import DescribeLogDirs
from lockstep.broker.metadata.api.describe_topic_partitions import DescribeTopicPartitions
from lockstep.broker.metadata.api.metadata import EnsureTopic, Metadata
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeView
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer


def build_handlers(
    cluster: MetadataCache,
    nodes: NodeView,
    endpoints: NodeEndpoints,
    ensure_topic: EnsureTopic,
    time_slicer: TimeSlicer,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package but ApiVersions, which lists them all."""
    return [
        DescribeCluster(cluster, nodes, endpoints, authorizer),
        DescribeLogDirs(cluster, authorizer),
        DescribeTopicPartitions(cluster, nodes, endpoints, authorizer),
        Metadata(cluster, nodes, endpoints, ensure_topic, time_slicer, authorizer),
    ]
