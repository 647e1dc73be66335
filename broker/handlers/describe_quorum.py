"""DescribeQuorum: who leads log group 0, which holds the cluster's metadata (KIP-595, KIP-836, KIP-853).

To clients that group is partition 0 of __cluster_metadata, and the index of a Raft entry is its offset there.
Only a request for just that partition is answered, as in Kafka.
"""

from __future__ import annotations

from broker.context import Answer, ClientContext
from broker.metadata import METADATA_GROUP
from broker.topic_rules import METADATA_TOPIC
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from protocol.messages.describe_quorum_request import DescribeQuorumRequest

API_KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)
NODES_SINCE = 2


def handle(context: ClientContext, header: RequestHeader, request: DescribeQuorumRequest) -> Answer:
    """The quorum, or for every partition that there is none."""
    asked = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if asked == [(METADATA_TOPIC, 0)]:
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
    raft = services.cluster.groups[METADATA_GROUP].raft
    here = context.endpoint()
    now_ms = services.clock_ms()
    voter = ReplicaState(
        replica_id=here.node_id,
        log_end_offset=raft.last_index + 1,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = PartitionData(
        leader_id=raft.leader_id,
        leader_epoch=raft.term,
        high_watermark=raft.commit_index + 1,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    if api_version >= NODES_SINCE:
        listener = Listener(name=context.listener, host=here.host, port=here.port)
        response.nodes = [Node(node_id=here.node_id, listeners=[listener])]
    return response
