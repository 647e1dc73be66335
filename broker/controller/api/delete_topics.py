"""DeleteTopics: by name, or since version 6 by id (KIP-516). Each topic is deleted or rejected on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.api.create_topics import TOPICS_AT_ONCE
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lockstep.protocol.primitives import ZERO_UUID

BY_ID_MIN_VERSION: Final = 6
DISABLED_MIN_VERSION: Final = 3
STRICT_QUOTA_MIN_VERSION: Final = 5
"""The first version with the error of a quota that is used up (KIP-599)."""


class DeleteTopics(RequestHandler):
    """See the module."""

    api_key = ApiKey.DELETE_TOPICS
    versions = (1, 6)
    needs = Needs.CONTROLLER

    def __init__(
        self,
        cluster: MetadataCache,
        topics: Topics,
        quotas: QuotaManager = NO_QUOTAS,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._quotas = quotas
        self._cluster = cluster
        self._topics = topics

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        """Delete the valid topics."""
        requested = request.topics
        if header.api_version < BY_ID_MIN_VERSION:
            requested = [DeleteTopicState(name=name) for name in request.topic_names]
        names = Counter(each.name for each in requested if each.name is not None)
        ids = Counter(each.topic_id for each in requested if each.topic_id != ZERO_UUID)
        quota = self._quotas.mutation_of(
            client, header.client_id, header.api_version >= STRICT_QUOTA_MIN_VERSION
        )
        results: list[DeletableTopicResult] = []
        deletions: dict[bytes, tuple[Topic, DeletableTopicResult]] = {}
        for each in _distinct(requested):
            result = DeletableTopicResult(name=each.name, topic_id=each.topic_id)
            results.append(result)
            try:
                if (each.name is not None and names[each.name] > 1) or ids[each.topic_id] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
                topic = self._find(client, header.api_version, each, result)
                if topic.topic_id in deletions:
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, "The same topic is named by name and by id."
                    )
                quota.record(len(topic.partitions))
            except RequestError as rejection:
                _set_error(result, rejection)
                continue
            result.name, result.topic_id = topic.name, topic.topic_id
            deletions[topic.topic_id] = topic, result
        ordered = list(deletions.values())
        for first in range(0, len(ordered), TOPICS_AT_ONCE):
            chunk = ordered[first : first + TOPICS_AT_ONCE]
            await asyncio.gather(*(self._delete(topic, result) for topic, result in chunk))
        return DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms(), responses=results)

    def _find(
        self,
        client: ClientContext,
        api_version: int,
        requested: DeleteTopicState,
        result: DeletableTopicResult,
    ) -> Topic:
        """The topic to delete; a topic by id gets its name in the result if the client may see it. Raises
        RequestError."""
        self._topics.check_leads()
        if not self._cluster.settings.delete_topic_enable:
            knows_error = api_version >= DISABLED_MIN_VERSION
            error = ErrorCode.TOPIC_DELETION_DISABLED if knows_error else ErrorCode.INVALID_REQUEST
            raise RequestError(error, "Topic deletion is disabled.")
        cluster = self._cluster
        if requested.name is None and requested.topic_id == ZERO_UUID:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if requested.name is not None and requested.topic_id != ZERO_UUID:
            raise RequestError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        topic = (
            cluster.topic_by_id(requested.topic_id)
            if requested.name is None
            else cluster.topic(requested.name)
        )
        name = requested.name if topic is None else topic.name
        if name is not None and not self._may(client, AclOperation.DELETE, name):
            may_describe = self._may(client, AclOperation.DESCRIBE, name)
            if topic is not None or not may_describe:
                if requested.name is None and may_describe:
                    result.name = name
                denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                raise RequestError(denied, denied.message)
        if topic is None:
            unknown_name = requested.name is not None
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown_name else ErrorCode.UNKNOWN_TOPIC_ID
            raise RequestError(error, error.message)
        return topic

    def _may(self, client: ClientContext, operation: AclOperation, name: str) -> bool:
        """True if the client may do this with a topic; who may delete all may describe all, too."""
        access = self._access
        return access.allows_on_cluster(client, AclOperation.DELETE, is_requested=False) or access.allows(
            client, operation, AclResourceType.TOPIC, name
        )

    async def _delete(self, topic: Topic, result: DeletableTopicResult) -> None:
        try:
            await self._topics.delete(topic)
        except RequestError as rejection:
            _set_error(result, rejection)


def _distinct(requested: list[DeleteTopicState]) -> list[DeleteTopicState]:
    """Each name and id once; topics that are not named at all stay as they are."""
    unique: dict[tuple[str | None, bytes], DeleteTopicState] = {}
    without_name = []
    for each in requested:
        if each.name is None and each.topic_id == ZERO_UUID:
            without_name.append(each)
        else:
            unique.setdefault((each.name, each.topic_id), each)
    return [*unique.values(), *without_name]


def _set_error(result: DeletableTopicResult, rejection: RequestError) -> None:
    result.error_code = rejection.error
    result.error_message = rejection.message or None
