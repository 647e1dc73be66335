"""OffsetCommit: stores the valid offsets in one batch, and responds when it is committed.

Versions 2 to 4 may set the retention of offsets, 9 and newer have an error for an unknown group (KIP-848), 10
names topics by id. An unknown partition gets its own error; an error of the group or of the member is every
other partition's.
Source: Kafka's KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Access, Authorizer
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import (
    NEVER,
    CommittedOffset,
    Record,
    are_too_large,
    is_too_long,
    offset_record,
)
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.read_barrier import Leadership
from lockstep.broker.requests.request_context import (
    ClientContext,
    HandlerResponse,
    Needs,
    PendingResponse,
    RequestHandler,
)
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

UNKNOWN_GROUP_MIN_VERSION: Final = 9
TOPIC_IDS_MIN_VERSION: Final = 10
INT64_MAX: Final = 2**63 - 1


class OffsetCommit(RequestHandler):
    """See the module."""

    api_key = ApiKey.OFFSET_COMMIT
    versions = (2, 10)
    needs = Needs.COORDINATOR

    def __init__(
        self, groups: GroupCoordinators, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._cluster = cluster

    def lapsed_leaderships(self, request: OffsetCommitRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: OffsetCommitRequest
    ) -> HandlerResponse:
        """Store the valid offsets."""
        commit = _Commit(self._cluster, header.api_version, request, self._access, client)
        response = OffsetCommitResponse(
            topics=[commit.topic(each) for each in request.topics if each.partitions]
        )
        group_id = request.group_id
        if not self._access.allows(client, AclOperation.READ, AclResourceType.GROUP, group_id):
            for each in response.topics:
                for partition in each.partitions:
                    partition.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return response
        if not commit.valid:
            return response
        try:
            store, coordinator = self._groups.of(group_id)
            error = commit.check(coordinator)
            if error is ErrorCode.NONE:
                records = commit.records(store.time_ms())
        except RequestError as rejection:
            error = rejection.error
        if error is not ErrorCode.NONE:
            commit.fail(error)
            return response
        return (
            _OffsetCommitResponse(response, commit.stored, store, group_id, records) if records else response
        )


class _Commit:
    """One request."""

    __slots__ = ("_access", "_api_version", "_client", "_cluster", "_request", "stored", "valid")

    def __init__(
        self,
        cluster: MetadataCache,
        api_version: int,
        request: OffsetCommitRequest,
        access: Access,
        client: ClientContext,
    ) -> None:
        self._access = access
        self._client = client
        self._cluster = cluster
        self._api_version = api_version
        self._request = request
        self.valid: list[tuple[Topic, OffsetCommitRequestPartition, OffsetCommitResponsePartition]] = []
        """The known partitions with their responses."""
        self.stored: list[OffsetCommitResponsePartition] = []

    def topic(self, requested: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        """The response for one topic, as if all succeeds."""
        cluster = self._cluster
        if self._api_version >= TOPIC_IDS_MIN_VERSION:
            topic = cluster.topic_by_id(requested.topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = cluster.topic(requested.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = topic.name if topic is not None else requested.name
        by_unknown_id = topic is None and self._api_version >= TOPIC_IDS_MIN_VERSION
        if not by_unknown_id and not self._access.allows(
            self._client, AclOperation.READ, AclResourceType.TOPIC, name
        ):
            topic, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = 0 if topic is None else len(topic.partitions)
        partition_responses = []
        for partition in requested.partitions:
            response = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            partition_responses.append(response)
            if topic is None:
                response.error_code = error
            elif 0 <= partition.partition_index < count:
                self.valid.append((topic, partition, response))
            else:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return OffsetCommitResponseTopic(
            name=requested.name, topic_id=requested.topic_id, partitions=partition_responses
        )

    def check(self, coordinator: GroupCoordinator) -> ErrorCode:
        """The error of the group or the member, or NONE."""
        request = self._request
        error = coordinator.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version=self._api_version,
            partitions=((topic.topic_id, each.partition_index) for topic, each, _ in self.valid),
        )
        metadata_texts = ((topic.name, partition.committed_metadata) for topic, partition, _ in self.valid)
        if error is ErrorCode.NONE and are_too_large(request.group_id, len(self.valid), metadata_texts):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if (
            error is ErrorCode.ILLEGAL_GENERATION
            and self._api_version >= UNKNOWN_GROUP_MIN_VERSION
            and not coordinator.exists(request.group_id)
        ):
            return ErrorCode.GROUP_ID_NOT_FOUND
        return error

    def fail(self, error: ErrorCode) -> None:
        """Set an error for all known partitions: nothing is stored."""
        for _, _, response in self.valid:
            response.error_code = error

    def records(self, time_ms: int) -> list[Record]:
        """The records to append; a partition with too long metadata gets an error."""
        expire_time_ms = NEVER
        if self._request.retention_time_ms != -1:
            expire_time_ms = min(time_ms + self._request.retention_time_ms, INT64_MAX)
        max_bytes = self._cluster.settings.offset_metadata_max_bytes
        group_id = self._request.group_id
        records = []
        for topic, partition, response in self.valid:
            metadata = partition.committed_metadata or ""
            if is_too_long(metadata, max_bytes):
                response.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                time_ms,
                expire_time_ms,
                topic.topic_id,
            )
            records.append(offset_record(group_id, topic.name, partition.partition_index, committed))
            self.stored.append(response)
        return records


class _OffsetCommitResponse(PendingResponse):
    """An OffsetCommit response that waits for the commit."""

    __slots__ = ("_stored", "_waiting_response")

    def __init__(
        self,
        response: OffsetCommitResponse,
        stored: list[OffsetCommitResponsePartition],
        store: GroupStore,
        group_id: str,
        records: list[Record],
    ) -> None:
        super().__init__()
        self._waiting_response = response
        self._stored = stored
        store.append(group_id, records, self._on_committed)

    def _on_committed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            for each in self._stored:
                each.error_code = error
        self.complete(self._waiting_response)
