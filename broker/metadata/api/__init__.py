"""Handlers: `api_versions`, `metadata`, `describe_cluster`, `describe_topic_partitions`,
`describe_log_dirs`."""

from __future__ import annotations

from lockstep.broker.metadata.api.describe_cluster import DescribeCluster
from lockstep.broker.metadata.api.describe_log_dirs import DescribeLogDirs
from lockstep.broker.metadata.api.describe_topic_partitions import DescribeTopicPartitions
from lockstep.broker.metadata.api.metadata import EnsureTopic, Metadata
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeView
from lockstep.broker.requests.request_context import RequestHandler


def build_handlers(
    cluster: MetadataCache, nodes: NodeView, endpoints: NodeEndpoints, ensure_topic: EnsureTopic
) -> list[RequestHandler]:
    """Builds the handlers of this package but ApiVersions, which lists them all."""
    return [
        DescribeCluster(cluster, nodes, endpoints),
        DescribeLogDirs(cluster),
        DescribeTopicPartitions(cluster, nodes, endpoints),
        Metadata(cluster, nodes, endpoints, ensure_topic),
    ]
