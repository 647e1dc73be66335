"""DescribeQuorum: the leader and members of log group 0, the cluster's metadata (KIP-595, KIP-836, KIP-853).

To clients that group is partition 0 of __cluster_metadata, and the index of a Raft entry is its offset there.
A request for any other partition gets UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.topic_validation import METADATA_TOPIC
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from lockstep.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from lockstep.storage.group_options import node_of
from lockstep.storage.log_group import LogGroup

NODES_MIN_VERSION = 2


class DescribeQuorum(RequestHandler):
    """See the module."""

    api_key = ApiKey.DESCRIBE_QUORUM
    versions = (0, 2)
    needs = Needs.CONTROLLER

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        endpoints: NodeEndpoints,
        clock_ms: Callable[[], int],
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints
        self._clock_ms = clock_ms

    def handle(
        self, client: ClientContext, header: RequestHeader, request: DescribeQuorumRequest
    ) -> HandlerResponse:
        """Returns the quorum, or an error for every partition."""
        if not self._access.allows_on_cluster(client, AclOperation.DESCRIBE):
            denied = cluster_denial(AclOperation.DESCRIBE)
            return DescribeQuorumResponse(error_code=denied.error, error_message=denied.message)
        requested = [
            (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
        ]
        if requested == [(METADATA_TOPIC, 0)]:
            return self._quorum(client, header.api_version)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeQuorumResponse(
            topics=[
                TopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        PartitionData(
                            partition_index=each.partition_index,
                            error_code=error,
                            error_message=error.message,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _quorum(self, client: ClientContext, api_version: int) -> DescribeQuorumResponse:
        group = self._cluster.groups.get(METADATA_GROUP)
        if group is None or not group.is_leader:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader_id, term = self._nodes.leader_of(METADATA_GROUP)
            error_partition = PartitionData(
                error_code=error, error_message=error.message, leader_id=leader_id, leader_epoch=term
            )
            return DescribeQuorumResponse(
                topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[error_partition])]
            )
        raft = group.raft
        partition = PartitionData(
            leader_id=group.leader_id,
            leader_epoch=raft.term,
            high_watermark=raft.commit_index + 1,
            current_voters=[self._replica(group, each) for each in raft.configuration.voters],
            observers=[self._replica(group, each) for each in raft.configuration.learners],
        )
        response = DescribeQuorumResponse(
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
        )
        if api_version >= NODES_MIN_VERSION:
            voters = [self._endpoints.of(node_of(each), client) for each in raft.configuration.voters]
            response.nodes = [
                Node(
                    node_id=each.node_id,
                    listeners=[Listener(name=client.listener, host=each.host, port=each.port)],
                )
                for each in voters
                if each is not None
            ]
        return response

    def _replica(self, group: LogGroup, member: int) -> ReplicaState:
        """Returns a member's state on the leader; times are by this node's clock, -1 without a contact in
        this term."""
        raft = group.raft
        now_ms = self._clock_ms()
        progress = raft.progress(member)
        end, contact_ms = raft.last_index, now_ms
        if progress is not None:
            end = progress.match_index
            contact_ms = now_ms - (raft.now_ms - progress.contact_ms) if progress.contact_ms >= 0 else -1
        return ReplicaState(
            replica_id=node_of(member),
            log_end_offset=end + 1,
            last_fetch_timestamp=contact_ms,
            last_caught_up_timestamp=contact_ms if end == raft.last_index else -1,
        )
