"""OffsetFetch: what groups have committed; -1 where that is nothing, also in groups that there are not.

Versions: 2 all topics (null); 7 offsets must be stable (KIP-447); 8 several groups (KIP-709); 9 member ids
and epochs, which only groups of the new protocol check (KIP-848); 10 topic ids. Commits that are under way
are waited for; where offsets must be stable, one that a transaction may change yet is refused: clients ask
again. An offset committed to an earlier topic of the same name is not shown.
Source: Kafka's OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import partial
from typing import Final

from broker.context import ClientContext, HandlerResponse
from broker.coordination.hosted import when_certain
from broker.groups.records import CommittedOffset
from broker.groups.store import GroupStore
from broker.handlers.repeated import Repeated
from broker.handlers.sliced_response import respond_in_slices
from broker.metadata import Topic
from broker.request_errors import RequestError
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.primitives import ZERO_UUID
from storage.types import StorageError

API_KEY = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)

GROUP_ERRORS_SINCE: Final = 2
BATCHED_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
NOTHING: Final = CommittedOffset(-1)
STABLE: Final[Set[tuple[str, int]]] = frozenset()
"""No offset is in a transaction, or nobody asks."""


def handle(context: ClientContext, header: RequestHeader, request: OffsetFetchRequest) -> HandlerResponse:
    """Answer at once, unless commits are under way: whoever commits and then asks, perhaps without waiting
    for the first answer, is told what it committed."""
    version = header.api_version
    groups = request.groups if version >= BATCHED_SINCE else [_only_group(request)]
    must_be_stable = request.require_stable

    def looked(found: list[GroupStore | None]) -> HandlerResponse:
        stores = {store.group.group_id: store for store in found if store is not None}
        if not stores:
            return _response(context, version, groups, must_be_stable)
        return _when_committed(context, version, groups, must_be_stable, list(stores.values()))

    return respond_in_slices(context, groups, partial(_under_way, context), looked)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """An old request in the new form."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _under_way(context: ClientContext, group: OffsetFetchRequestGroup) -> GroupStore | None:
    """The store of a group whose commits are under way."""
    try:
        store = context.services.consumer_groups.store(group.group_id)
    except RequestError:
        return None
    return store if store.is_under_way(group.group_id) else None


async def _when_committed(
    context: ClientContext,
    version: int,
    groups: list[OffsetFetchRequestGroup],
    must_be_stable: bool,
    stores: list[GroupStore],
) -> HandlerResponse:
    try:
        for store in stores:
            await store.committed()
    except StorageError:
        failed = [_refused(group, ErrorCode.NOT_COORDINATOR) for group in groups]
        return _as_asked(version, groups, failed)
    return await when_certain(partial(_response, context, version, groups, must_be_stable))


def _response(
    context: ClientContext, version: int, groups: list[OffsetFetchRequestGroup], must_be_stable: bool
) -> HandlerResponse:
    # All of a group's offsets are asked for in a few bytes: so each group's only once.
    whole: set[str] = set()
    repeated = Repeated()

    def told(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        if group.topics is None and group.group_id in whole:
            return _refused(group, ErrorCode.INVALID_REQUEST)
        if group.topics is None:
            whole.add(group.group_id)
        return _group(context, version, group, must_be_stable, repeated)

    return respond_in_slices(context, groups, told, partial(_as_asked, version, groups))


def _as_asked(
    version: int, groups: list[OffsetFetchRequestGroup], answers: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    """New answers in the form of the request's version."""
    if version >= BATCHED_SINCE:
        return OffsetFetchResponse(groups=answers)
    answer = answers[0]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_old_partition(each) for each in topic.partitions]
        )
        for topic in answer.topics
    ]
    if answer.error_code and version < GROUP_ERRORS_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=answer.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in groups[0].topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=answer.error_code)


def _old_partition(answer: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=answer.partition_index,
        committed_offset=answer.committed_offset,
        committed_leader_epoch=answer.committed_leader_epoch,
        metadata=answer.metadata,
        error_code=answer.error_code,
    )


def _refused(group: OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)


def _group(
    context: ClientContext,
    version: int,
    wanted: OffsetFetchRequestGroup,
    must_be_stable: bool,
    repeated: Repeated,
) -> OffsetFetchResponseGroup:
    services = context.services
    try:
        state = services.consumer_groups.store(wanted.group_id).state
    except RequestError as refused:
        return _refused(wanted, refused.error)
    offsets = state.offsets(wanted.group_id)
    unstable = state.pending(wanted.group_id) if must_be_stable else STABLE
    cluster = services.cluster
    topics: list[OffsetFetchResponseTopics] = []
    if wanted.topics is None:
        by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
        for (name, index), committed in offsets.items():
            by_topic.setdefault(name, []).append((index, committed))
        for name, found in by_topic.items():
            topic = cluster.topic(name)
            shown = [each for each in found if not _is_of_another(each[1], topic)]
            if topic is None and version >= TOPIC_IDS_SINCE:
                continue  # a topic that is gone has no id to be called by
            if shown:
                topics.append(_topic(name, topic, shown, unstable))
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)
    for each in wanted.topics:
        if version >= TOPIC_IDS_SINCE:
            topic = cluster.topic_by_id(each.topic_id)
            if topic is None:
                topics.append(_unknown(each))
                continue
            name = topic.name
        else:
            name, topic = each.name, cluster.topic(each.name)
        places = [(wanted.group_id, name, index) for index in each.partition_indexes]
        pairs = [(index, offsets.get((name, index), NOTHING)) for *_, index in repeated.told(places)]
        pairs = [(index, NOTHING if _is_of_another(found, topic) else found) for index, found in pairs]
        topics.append(_topic(name, topic, pairs, unstable))
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


def _is_of_another(committed: CommittedOffset, topic: Topic | None) -> bool:
    """Was it committed to an earlier topic of this name?"""
    return topic is not None and committed.topic_id not in (ZERO_UUID, topic.topic_id)


def _topic(
    name: str,
    topic: Topic | None,
    found: Iterable[tuple[int, CommittedOffset]],
    unstable: Set[tuple[str, int]],
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=[
            _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if (name, index) in unstable
            else OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
            for index, committed in found
        ],
    )


def _unknown(wanted: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=wanted.topic_id,
        partitions=[_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in wanted.partition_indexes],
    )


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )
