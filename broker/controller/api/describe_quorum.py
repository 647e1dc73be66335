"""DescribeQuorum: the leader and members of log group 0, the cluster's metadata (KIP-595, KIP-836, KIP-853).

To clients that group is partition 0 of __cluster_metadata, and the index of a Raft entry is its offset there.
Only a request for just that partition is answered, as in Kafka.
"""

from __future__ import annotations

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.topic_validation import METADATA_TOPIC
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Services
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

API_KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)
NODES_MIN_VERSION = 2


def handle(context: ClientContext, header: RequestHeader, request: DescribeQuorumRequest) -> HandlerResponse:
    """The quorum, or an error for every partition."""
    requested = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if requested == [(METADATA_TOPIC, 0)]:
        return _quorum(context, header.api_version)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=each.partition_index, error_code=error, error_message=error.message
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _quorum(context: ClientContext, api_version: int) -> DescribeQuorumResponse:
    services = context.services
    group = services.cluster.groups.get(METADATA_GROUP)
    if group is None or not group.is_leader:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader_id, term = services.nodes.leader_of(METADATA_GROUP)
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
        current_voters=[_replica(services, group, each) for each in raft.configuration.voters],
        observers=[_replica(services, group, each) for each in raft.configuration.learners],
    )
    response = DescribeQuorumResponse(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    if api_version >= NODES_MIN_VERSION:
        voters = [context.endpoint_of(node_of(each)) for each in raft.configuration.voters]
        response.nodes = [
            Node(
                node_id=each.node_id,
                listeners=[Listener(name=context.listener, host=each.host, port=each.port)],
            )
            for each in voters
            if each is not None
        ]
    return response


def _replica(services: Services, group: LogGroup, member: int) -> ReplicaState:
    """A member's state on the leader; times are this node's, -1 without a contact in this term."""
    raft = group.raft
    now_ms = services.clock_ms()
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
