"""ElectLeaders: a log group is handed to its preferred node; its partitions go along (KIP-183, KIP-460).

Any living leader will do for an unclean election, and there is none else: nobody leads who lacks what was
acknowledged. Source: Kafka's ReplicationControlManager.electLeaders: asked for all, it names only partitions
that changed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.context import ClientContext
from broker.metadata import TopicPartition
from broker.topic_names import MAX_NAME_CHARACTERS
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from storage.peers.limits import PeerError
from storage.types import StorageError

API_KEY = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)

PREFERRED: Final = 0
UNCLEAN: Final = 1
Outcome = tuple[ErrorCode, str | None]


async def handle(
    context: ClientContext, header: RequestHeader, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """One result per partition named, as often as it is named."""
    cluster = context.services.cluster
    kind = request.election_type
    known = kind in (PREFERRED, UNCLEAN) or request.topic_partitions == []
    response = ElectLeadersResponse(error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:
        every = {each.group.group_id for topic in cluster.topics() for each in topic.partitions}
        changed = {n for n, (error, _) in (await _elected(context, kind, every)).items() if not error}
        for topic in cluster.topics() if known else ():
            moved = [
                PartitionResult(partition_id=each.index)
                for each in topic.partitions
                if each.group.group_id in changed
            ]
            response.replica_election_results.append(
                ReplicaElectionResult(topic=topic.name, partition_result=moved)
            )
        return response
    asked = [(t.topic, index) for t in request.topic_partitions for index in t.partitions]
    found = {each: cluster.partition(*each) for each in asked}
    numbers = {each.group.group_id for each in found.values() if each is not None}
    outcomes = await _elected(context, kind, numbers) if known else {}
    for wanted in request.topic_partitions:
        told = ReplicaElectionResult(topic=wanted.topic)
        response.replica_election_results.append(told)
        unknown = f"No such topic as {wanted.topic[:MAX_NAME_CHARACTERS]}"  # one text for all its partitions
        is_there = cluster.topic(wanted.topic) is not None
        for index in wanted.partitions:
            partition = found[wanted.topic, index]
            error: ErrorCode = ErrorCode.INVALID_REQUEST
            message: str | None = f"Unknown election type {kind}"
            if known:
                error, message = _result(partition, wanted.topic, index, is_there, unknown, outcomes)
            told.partition_result.append(
                PartitionResult(partition_id=index, error_code=error, error_message=message)
            )
    return response


def _result(
    partition: TopicPartition | None,
    name: str,
    index: int,
    topic_is_there: bool,
    unknown: str,
    outcomes: dict[int, Outcome],
) -> Outcome:
    if not topic_is_there:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return outcomes[partition.group.group_id]


async def _elected(context: ClientContext, kind: int, numbers: set[int]) -> dict[int, Outcome]:
    """What became of each log group's election."""
    ordered = sorted(numbers)
    outcomes = await asyncio.gather(*(_elect(context, kind, number) for number in ordered))
    return dict(zip(ordered, outcomes, strict=True))


async def _elect(context: ClientContext, kind: int, number: int) -> Outcome:
    services = context.services
    leader = services.nodes.live_leader_of(number)
    preferred = services.cluster.nodes_of(number)[0]
    if leader == preferred or (kind == UNCLEAN and leader >= 0):
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if kind == UNCLEAN:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica that may lead is there."
    if services.node is None or not services.nodes.is_alive(preferred):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"The preferred leader {preferred} is not there."
    try:
        await services.node.transfer(number, preferred)
    except (PeerError, StorageError) as error:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, str(error)
    return ErrorCode.NONE, None
