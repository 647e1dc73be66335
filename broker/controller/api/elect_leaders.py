"""ElectLeaders: transfers a log group's leadership to its preferred node, with all partitions (KIP-183,
KIP-460).

An unclean election needs any live leader; a replica without an acknowledged write never becomes one.
Source: Kafka's ReplicationControlManager.electLeaders: a request for all partitions gets only those that
changed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import StorageError

TOP_ERROR_MIN_VERSION: Final = 1
PREFERRED: Final = 0
UNCLEAN: Final = 1
Outcome = tuple[ErrorCode, str | None]


class ElectLeaders(RequestHandler):
    """See the module."""

    api_key = ApiKey.ELECT_LEADERS
    versions = (0, 2)
    needs = Needs.CONTROLLER

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        transfers: TransferRequests,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._transfers = transfers

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        """One result per partition named, as often as it is named."""
        if not self._access.allows_on_cluster(client, AclOperation.ALTER):
            return _denial_response(header.api_version, request)
        cluster = self._cluster
        election_type = request.election_type
        is_known_type = election_type in (PREFERRED, UNCLEAN) or request.topic_partitions == []
        response = ElectLeadersResponse(
            error_code=ErrorCode.NONE if is_known_type else ErrorCode.INVALID_REQUEST
        )
        if request.topic_partitions is None:
            group_ids = {each.group.group_id for topic in cluster.topics() for each in topic.partitions}
            changed = {
                n for n, (error, _) in (await self._elect_all(election_type, group_ids)).items() if not error
            }
            for topic in cluster.topics() if is_known_type else ():
                changed_partitions = [
                    PartitionResult(partition_id=each.index)
                    for each in topic.partitions
                    if each.group.group_id in changed
                ]
                response.replica_election_results.append(
                    ReplicaElectionResult(topic=topic.name, partition_result=changed_partitions)
                )
            return response
        requested_partitions = [(t.topic, index) for t in request.topic_partitions for index in t.partitions]
        partitions = {each: cluster.partition(*each) for each in requested_partitions}
        group_ids = {each.group.group_id for each in partitions.values() if each is not None}
        outcomes = await self._elect_all(election_type, group_ids) if is_known_type else {}
        for requested in request.topic_partitions:
            topic_result = ReplicaElectionResult(topic=requested.topic)
            response.replica_election_results.append(topic_result)
            unknown_text = (
                f"No such topic as {requested.topic[:MAX_NAME_CHARACTERS]}"  # one text for all its partitions
            )
            topic_exists = cluster.topic(requested.topic) is not None
            for index in requested.partitions:
                partition = partitions[requested.topic, index]
                error: ErrorCode = ErrorCode.INVALID_REQUEST
                message: str | None = f"Unknown election type {election_type}"
                if is_known_type:
                    error, message = _result(
                        partition, requested.topic, index, topic_exists, unknown_text, outcomes
                    )
                topic_result.partition_result.append(
                    PartitionResult(partition_id=index, error_code=error, error_message=message)
                )
        return response

    async def _elect_all(self, election_type: int, group_ids: set[int]) -> dict[int, Outcome]:
        """The outcome of each log group's election."""
        ordered = sorted(group_ids)
        outcomes = await asyncio.gather(*(self._elect(election_type, group_id) for group_id in ordered))
        return dict(zip(ordered, outcomes, strict=True))

    async def _elect(self, election_type: int, group_id: int) -> Outcome:
        leader = self._nodes.live_leader_of(group_id)
        preferred = self._cluster.nodes_of(group_id)[0]
        if leader == preferred or (election_type == UNCLEAN and leader >= 0):
            return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        if election_type == UNCLEAN:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No eligible replica is alive."
        if self._cluster.is_single_node or not self._nodes.is_alive(preferred):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"The preferred leader {preferred} is not alive."
        try:
            await self._transfers.begin(group_id, preferred)
        except (PeerError, StorageError) as error:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, str(error)
        return ErrorCode.NONE, None


def _result(
    partition: Partition | None,
    name: str,
    index: int,
    topic_exists: bool,
    unknown_text: str,
    outcomes: dict[int, Outcome],
) -> Outcome:
    if not topic_exists:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_text
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return outcomes[partition.group.group_id]


def _denial_response(api_version: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """The response to a client that may not alter the cluster: the error for all, and for each partition."""
    denied = cluster_denial(AclOperation.ALTER)
    return ElectLeadersResponse(
        error_code=denied.error if api_version >= TOP_ERROR_MIN_VERSION else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=n, error_code=denied.error, error_message=denied.message)
                    for n in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
