"""OffsetFetch: the committed offsets of groups; -1 for none, also for unknown groups.

Versions: 2 all topics (null); 7 offsets must be stable (KIP-447); 8 several groups (KIP-709); 9 member ids
and epochs, which only groups of the new protocol check (KIP-848); 10 topic ids. The response waits for
pending commits; where offsets must be stable, one of an open transaction gets an error, and clients retry. An
offset that was committed to an earlier topic of the same name is left out.
Source: Kafka's OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from functools import partial
from typing import Final, NamedTuple

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.consumer.offset_checks import fetch_error
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import CommittedOffset
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.requests.duplicate_names import DuplicateNames
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, Needs, RequestHandler
from lockstep.broker.requests.sliced_response import respond_in_slices
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_fetch import (
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
from lockstep.protocol.primitives import ZERO_UUID
from lockstep.storage.types import StorageError

GROUP_ERRORS_MIN_VERSION: Final = 2
BATCHED_MIN_VERSION: Final = 8
TOPIC_IDS_MIN_VERSION: Final = 10
NO_OFFSET: Final = CommittedOffset(-1)
NO_UNSTABLE_OFFSETS: Final[Set[tuple[str, int]]] = frozenset()
"""No offset is in a transaction, or the request does not require stable offsets."""


class _Fetch(NamedTuple):
    """One request."""

    version: int
    groups: list[OffsetFetchRequestGroup]
    must_be_stable: bool
    client: ClientContext


class OffsetFetch(RequestHandler):
    """See the module."""

    api_key = ApiKey.OFFSET_FETCH
    versions = (1, 10)
    needs = Needs.COORDINATOR

    def __init__(
        self,
        groups: GroupCoordinators,
        cluster: MetadataCache,
        time_slicer: TimeSlicer,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._cluster = cluster
        self._time_slicer = time_slicer

    def lapsed_leaderships(self, request: OffsetFetchRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([each.group_id for each in request.groups] or [request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: OffsetFetchRequest
    ) -> HandlerResponse:
        """Respond at once, unless commits are pending: a client that commits and fetches without waiting
        reads its own commit."""
        version = header.api_version
        groups = request.groups if version >= BATCHED_MIN_VERSION else [_single_group(request)]
        fetch = _Fetch(version, groups, request.require_stable, client)

        def respond(found: list[GroupStore | None]) -> HandlerResponse:
            stores = {store.group.group_id: store for store in found if store is not None}
            if not stores:
                return self._respond(fetch)
            return self._respond_when_committed(fetch, list(stores.values()))

        return respond_in_slices(self._time_slicer, groups, self._store_with_pending_commits, respond)

    def _store_with_pending_commits(self, group: OffsetFetchRequestGroup) -> GroupStore | None:
        """The store of a group with pending commits."""
        try:
            store = self._groups.store(group.group_id)
        except RequestError:
            return None
        return store if store.is_under_way(group.group_id) else None

    async def _respond_when_committed(self, fetch: _Fetch, stores: list[GroupStore]) -> HandlerResponse:
        try:
            for store in stores:
                await store.committed()
        except StorageError:
            return _in_version(
                fetch, [_error_group(group, ErrorCode.NOT_COORDINATOR) for group in fetch.groups]
            )
        return self._respond(fetch)

    def _respond(self, fetch: _Fetch) -> HandlerResponse:
        # A few bytes request all of a group's offsets, so each group may do that only once.
        fully_requested: set[str] = set()
        duplicate_names = DuplicateNames()

        def group_response(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
            if group.topics is None and group.group_id in fully_requested:
                return _error_group(group, ErrorCode.INVALID_REQUEST)
            if group.topics is None:
                fully_requested.add(group.group_id)
            return self._group(fetch, group, duplicate_names)

        return respond_in_slices(self._time_slicer, fetch.groups, group_response, partial(_in_version, fetch))

    def _group(
        self, fetch: _Fetch, requested: OffsetFetchRequestGroup, duplicate_names: DuplicateNames
    ) -> OffsetFetchResponseGroup:
        group_id = requested.group_id
        if not self._access.allows(fetch.client, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
            return _error_group(requested, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            state = self._groups.store(group_id).state
        except RequestError as rejection:
            return _error_group(requested, rejection.error)
        consumer_group = state.consumer_groups.group(group_id)
        error = fetch_error(consumer_group, requested.member_id, requested.member_epoch)
        if error is not ErrorCode.NONE:
            return _error_group(requested, error)
        offsets = state.offsets(group_id)
        unstable = state.pending(group_id) if fetch.must_be_stable else NO_UNSTABLE_OFFSETS
        if requested.topics is None:
            topics = self._all_topics(fetch, offsets, unstable)
            return OffsetFetchResponseGroup(group_id=group_id, topics=topics)
        topics = []
        for each in requested.topics:
            if fetch.version >= TOPIC_IDS_MIN_VERSION:
                topic = self._cluster.topic_by_id(each.topic_id)
                if topic is None:
                    topics.append(_error_topic(each, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                name = topic.name
            else:
                name, topic = each.name, self._cluster.topic(each.name)
            if not self._may_describe(fetch, name, is_requested=True):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(_error_topic(each, error))
                continue
            topic_partitions = [(group_id, name, index) for index in each.partition_indexes]
            pairs = [
                (index, offsets.get((name, index), NO_OFFSET))
                for *_, index in duplicate_names.without_excess(topic_partitions)
            ]
            pairs = [
                (index, NO_OFFSET if _is_of_former_topic(found, topic) else found) for index, found in pairs
            ]
            topics.append(_topic(name, topic, pairs, unstable))
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _may_describe(self, fetch: _Fetch, name: str, *, is_requested: bool) -> bool:
        return self._access.allows(
            fetch.client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name, is_requested=is_requested
        )

    def _all_topics(
        self,
        fetch: _Fetch,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        unstable: Set[tuple[str, int]],
    ) -> list[OffsetFetchResponseTopics]:
        by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
        for (name, index), committed in offsets.items():
            if name not in by_topic and not self._may_describe(fetch, name, is_requested=False):
                continue
            by_topic.setdefault(name, []).append((index, committed))
        topics = []
        for name, found in by_topic.items():
            topic = self._cluster.topic(name)
            partitions = [each for each in found if not _is_of_former_topic(each[1], topic)]
            if topic is None and fetch.version >= TOPIC_IDS_MIN_VERSION:
                continue  # a deleted topic has no id, and a response by id cannot name it
            if partitions:
                topics.append(_topic(name, topic, partitions, unstable))
        return topics


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request for one group in the form for several."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _in_version(fetch: _Fetch, group_responses: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    """The response in the form of the request's version."""
    if fetch.version >= BATCHED_MIN_VERSION:
        return OffsetFetchResponse(groups=group_responses)
    only = group_responses[0]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_single_group_partition(each) for each in topic.partitions]
        )
        for topic in only.topics
    ]
    if only.error_code and fetch.version < GROUP_ERRORS_MIN_VERSION:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=only.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in fetch.groups[0].topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=only.error_code)


def _single_group_partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _error_group(group: OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)


def _is_of_former_topic(committed: CommittedOffset, topic: Topic | None) -> bool:
    """True if the offset was committed to an earlier topic of this name."""
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
            _error_partition(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
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


def _error_topic(requested: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=[_error_partition(index, error) for index in requested.partition_indexes],
    )


def _error_partition(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )
