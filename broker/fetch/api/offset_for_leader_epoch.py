"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that check their position (KIP-320)."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.leader_epoch_check import end_of_epoch, epoch_error
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpoch(RequestHandler):
    """See the module."""

    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    versions = (2, 4)

    def __init__(self, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster

    def handle(
        self, client: ClientContext, header: RequestHeader, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """One result per partition."""
        access = self._access
        may_all = access.allows_on_cluster(client, AclOperation.CLUSTER_ACTION, is_requested=False)
        allowed = {
            topic.topic: may_all
            or access.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic)
            for topic in request.topics
        }
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        self._end(topic.topic, requested, allowed[topic.topic])
                        for requested in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, name: str, requested: OffsetForLeaderPartition, is_allowed: bool) -> EpochEndOffset:
        response = EpochEndOffset(partition=requested.partition)
        if not is_allowed:
            response.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response
        partition = self._cluster.partition(name, requested.partition)
        if partition is None:
            response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return response
        response.error_code = epoch_error(partition, requested.current_leader_epoch)
        if not response.error_code:
            response.leader_epoch, response.end_offset = end_of_epoch(partition, requested.leader_epoch)
        return response
