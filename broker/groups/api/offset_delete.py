"""OffsetDelete: deletes a group's offsets of partitions (KIP-496).

A topic that a member subscribes to gets an error of its own; a group with members of another protocol than
`consumer` as a whole. Offsets of an open transaction are deleted, too.
Source: Kafka's OffsetMetadataManager.deleteOffsets, ClassicGroup.validateOffsetDelete.
"""

from __future__ import annotations

from collections.abc import Collection

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.group_records import Record, offset_record
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.groups.subscription import CONSUMER
from lockstep.broker.metadata.metadata_cache import MetadataCache
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
from lockstep.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class OffsetDelete(RequestHandler):
    """See the module."""

    api_key = ApiKey.OFFSET_DELETE
    versions = (0, 0)
    needs = Needs.COORDINATOR

    def __init__(
        self, groups: GroupCoordinators, cluster: MetadataCache, authorizer: Authorizer = ALLOW_ALL
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._groups = groups
        self._cluster = cluster

    def lapsed_leaderships(self, request: OffsetDeleteRequest) -> Collection[Leadership]:
        return self._groups.lapsed_shards([request.group_id])

    def handle(
        self, client: ClientContext, header: RequestHeader, request: OffsetDeleteRequest
    ) -> HandlerResponse:
        """Delete the offsets that may be deleted."""
        group_id = request.group_id
        if not self._access.allows(client, AclOperation.DELETE, AclResourceType.GROUP, group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            store, coordinator = self._groups.of(group_id)
        except RequestError as rejection:
            return OffsetDeleteResponse(error_code=rejection.error)
        error = _group_error(coordinator, group_id)
        if error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=error)
        subscribed = coordinator.subscribed_topics(group_id)
        deleted: dict[tuple[str, int], None] = {}
        topics = []
        for topic in request.topics:
            is_subscribed = subscribed is None or topic.name in subscribed
            if self._access.allows(client, AclOperation.READ, AclResourceType.TOPIC, topic.name):
                topics.append(self._topic(topic, is_subscribed, deleted))
            else:
                topics.append(_denied_topic(topic))
        response = OffsetDeleteResponse(topics=topics)
        if not store.is_under_way(group_id):  # else a commit that is not to be seen yet may be one of them
            committed = set(store.state.topic_partitions(group_id))
            deleted = {partition: None for partition in deleted if partition in committed}
        if not deleted:
            return response
        records = [offset_record(group_id, *partition, None) for partition in deleted]
        return _OffsetDeleteResponse(response, store, group_id, records)

    def _topic(
        self,
        requested: OffsetDeleteRequestTopic,
        is_subscribed: bool,
        deleted: dict[tuple[str, int], None],
    ) -> OffsetDeleteResponseTopic:
        """The response for one topic; adds the offsets to delete to `deleted`, once each."""
        partition_responses = []
        for each in requested.partitions:
            response = OffsetDeleteResponsePartition(partition_index=each.partition_index)
            partition_responses.append(response)
            if self._cluster.partition(requested.name, each.partition_index) is None:
                response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_subscribed:
                response.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                deleted[requested.name, each.partition_index] = None
        return OffsetDeleteResponseTopic(name=requested.name, partitions=partition_responses)


def _denied_topic(requested: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    """The response for a topic that the client may not read."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponseTopic(
        name=requested.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in requested.partitions
        ],
    )


def _group_error(coordinator: GroupCoordinator, group_id: str) -> ErrorCode:
    if not coordinator.exists(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not coordinator.is_empty(group_id) and coordinator.protocol_type(group_id) != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


class _OffsetDeleteResponse(PendingResponse):
    """An OffsetDelete response that waits for the commit."""

    __slots__ = ("_waiting_response",)

    def __init__(
        self, response: OffsetDeleteResponse, store: GroupStore, group_id: str, records: list[Record]
    ) -> None:
        super().__init__()
        self._waiting_response = response
        store.append(group_id, records, self._on_committed)

    def _on_committed(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.complete(self._waiting_response)
        else:
            self.complete(OffsetDeleteResponse(error_code=error))
