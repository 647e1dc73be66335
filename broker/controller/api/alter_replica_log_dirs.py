"""AlterReplicaLogDirs: replicas stay where they are, in the one log directory of their broker (KIP-113).

A move into that directory succeeds at once, as in Kafka for a replica that is there already; any other path
is LOG_DIR_NOT_FOUND. Source: Kafka's ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import os

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class AlterReplicaLogDirs(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_REPLICA_LOG_DIRS
    versions = (1, 2)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterReplicaLogDirsRequest
    ) -> HandlerResponse:
        """One result for each partition; of several directories for one partition the last counts."""
        own_path = os.path.abspath(self._cluster.settings.log_dirs)
        paths = {
            (topic.name, index): each.path
            for each in request.dirs
            for topic in each.topics
            for index in topic.partitions
        }
        is_allowed = self._access.allows_on_cluster(client, AclOperation.ALTER)
        topics: dict[str, AlterReplicaLogDirTopicResult] = {}
        for (name, index), path in paths.items():
            result = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
            error = self._error(name, index) if path == own_path else ErrorCode.LOG_DIR_NOT_FOUND
            if not is_allowed:
                error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
            )
        return AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _error(self, topic: str, index: int) -> ErrorCode:
        partition = self._cluster.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if partition.is_here else ErrorCode.REPLICA_NOT_AVAILABLE
